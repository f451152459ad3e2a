"""The base class of services, and the mesh as a service gets it."""

from __future__ import annotations

import abc
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn

from outrider.mesh.bus import Bus
from outrider.mesh.config import Settings
from outrider.mesh.registry import Registry
from outrider.mesh.rpc import Server
from outrider.mesh.security import Certificates
from outrider.mesh.tasks import Tasks
from outrider.mesh.telemetry import Telemetry


@dataclass(frozen=True)
class Mesh:
    """The mesh as one process sees it: its own name, settings and server, and its connections to other processes.

    An exception in work spawned on ``tasks`` ends the process. Without ``certificates`` services talk in the clear.
    ``clock`` gives the time that all processes share, in seconds since 1970.
    """

    instance: str
    settings: Settings
    bus: Bus
    rpc: Server
    registry: Registry
    telemetry: Telemetry
    tasks: Tasks
    certificates: Certificates | None = None
    clock: Callable[[], float] = time.time


class Service(abc.ABC):
    """One of the mesh's processes; `run` runs it.

    ``kind`` names it in the registry, in the configuration file and in ``ps``; ``settings`` is the type of
    its settings; ``follows`` are the kinds that it has to find in the registry; ``local`` says whether processes of its
    host may reach it by a Unix socket as well; ``lasting`` says whether it erases data that outlives the process.
    """

    kind: ClassVar[str]
    follows: ClassVar[tuple[str, ...]] = ()
    local: ClassVar[bool] = False
    lasting: ClassVar[bool] = False
    settings: ClassVar[type[Settings]] = Settings

    def __init__(self, settings: Any) -> None:  # noqa: B027 - each service keeps its own type of settings
        """Takes the settings and does no work: that is for `start`."""

    @abc.abstractmethod
    async def start(self, mesh: Mesh) -> None:
        """Adds servicers to ``mesh.rpc``, subscribes, loads what it must (in a thread: the loop has to turn).

        The service is announced and SERVING when this returns. An `OutriderError` or `ConfigError` here is
        printed as one sentence and ends the process with exit code 3 or 2.
        """

    def status(self) -> dict[str, Any]:
        """The status that the registry announces: model, vocabulary, load. Called about once a second."""
        return {}

    def rpc_port(self, settings: Settings) -> int:
        """Port of the gRPC server: ``port``, unless the service serves something else there."""
        return settings.port

    async def erase(self, tenant: str, before: float) -> Mapping[str, int]:
        """Erases what this process holds of ``tenant``, and what it stores that is older than ``before``.

        ``before`` is in seconds since 1970. Returns how many of what it erased, by name. Work for the tenant ends.
        Raises `Unavailable` if something is out of reach; the call is then repeated.
        """
        return {}

    async def drain(self) -> None:  # noqa: B027 - a service without work in flight has nothing to do
        """Admits no more and returns when the work in flight is done; cut off after `Settings.drain_s`."""

    async def stop(self) -> None:  # noqa: B027 - as above
        """Releases everything; called once, after the gRPC server has ended, if `start` had returned."""


def run(service_type: type[Service]) -> NoReturn:
    """Runs a service by the command line and ends the process.

    Exit codes: 0 stopped as asked, 1 crashed, 2 configuration, 3 could not start. SIGTERM or SIGINT drains; a
    second one cuts that short.
    """
    from outrider.mesh.process import main

    sys.exit(main(service_type, sys.argv[1:]))
