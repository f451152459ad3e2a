"""The gateway's methods and messages, from ``inference.binpb``, which `make proto` generates.

The messages are in a separate pool, so that they never conflict with those of a server in the same process.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Any, NamedTuple

from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

_SERVICE = "outrider.v1.Inference"


class Method(NamedTuple):
    """One method: its path, its types of messages, and whether it streams answers."""

    path: str
    request: Any
    response: Any
    streams: bool


def _load() -> DescriptorPool:
    pool = DescriptorPool()
    for file in FileDescriptorSet.FromString(files(__package__).joinpath("inference.binpb").read_bytes()).file:
        pool.Add(file)
    return pool


_pool = _load()
METHODS = {
    method.name: Method(
        f"/{_SERVICE}/{method.name}",
        GetMessageClass(method.input_type),
        GetMessageClass(method.output_type),
        method.server_streaming,
    )
    for method in _pool.FindServiceByName(_SERVICE).methods
}
