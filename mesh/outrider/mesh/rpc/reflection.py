"""Server reflection in two versions: ``grpc.reflection.v1`` for newer clients, and grpcio's own ``v1alpha``.

Their messages differ only in name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import grpc
from google.protobuf import descriptor_pool
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.json_format import MessageToJson, Parse
from grpc_reflection.v1alpha import reflection
from grpc_reflection.v1alpha.reflection_pb2 import DESCRIPTOR, ServerReflectionRequest, ServerReflectionResponse

_OLD, _NEW = "v1alpha", "v1"
NAMES = tuple(reflection.SERVICE_NAME.replace(_OLD, each) for each in (_NEW, _OLD))
"""Full names of the two services."""


def add_reflection(services: Sequence[str], server: Any) -> None:
    """Makes ``server`` describe ``services``, by their full names, and reflection itself."""
    _describe()
    servicer = reflection.aio.ReflectionServicer([*services, *NAMES])
    handler = grpc.stream_stream_rpc_method_handler(
        servicer.ServerReflectionInfo,
        request_deserializer=ServerReflectionRequest.FromString,
        response_serializer=ServerReflectionResponse.SerializeToString,
    )
    for name in NAMES:
        server.add_registered_method_handlers(name, {"ServerReflectionInfo": handler})


def _describe() -> None:
    """Adds the newer service to the default pool of descriptors, unless a package has done so."""
    pool, described = descriptor_pool.Default(), FileDescriptorProto()
    try:
        pool.FindFileByName(DESCRIPTOR.name.replace(_OLD, _NEW))
    except KeyError:
        DESCRIPTOR.CopyToProto(described)
        renamed = Parse(MessageToJson(described).replace(_OLD, _NEW), FileDescriptorProto())
        pool.AddSerializedFile(renamed.SerializeToString())
