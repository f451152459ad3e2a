"""The life of a service's process: start in order, serve, drain, stop in order."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import time
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from importlib.metadata import version
from secrets import token_hex
from typing import Any

from outrider.mesh.addresses import advertised
from outrider.mesh.bus import Bus, find_login
from outrider.mesh.clock import MeshClock
from outrider.mesh.config import Settings
from outrider.mesh.erasures import Erasures
from outrider.mesh.errors import ConfigError, OutriderError, Unavailable
from outrider.mesh.probes import Probes
from outrider.mesh.registry import Registry, State
from outrider.mesh.registry.reach import Reach
from outrider.mesh.rpc import Server, close_channels, new_socket, secure_channels
from outrider.mesh.security import mesh_certificates, trust_of
from outrider.mesh.security.contexts import ServerContext
from outrider.mesh.service import Mesh, Service
from outrider.mesh.tasks import Tasks
from outrider.mesh.telemetry import (
    configure_logs,
    gauge,
    get_logger,
    start_audit,
    start_timeline,
    start_tracing,
    stop_audit,
    use_vllm_names,
)
from outrider.native.heap import give_memory_back

_GRACE_S = 2.0
_COLLECT_AFTER = 10_000
_tasks = gauge("tasks", "Tasks of asyncio that have not ended.")
_ready = gauge("ready", "1 while /readyz on the metrics port answers 200.")
_build = gauge("build_info", "1, with the version of Outrider.", ["version"])
_log = get_logger("lifecycle")


class CannotStart(Exception):
    """The service could not be started: one sentence."""

    exit_code = 3


class Lifecycle:
    """Takes one service from configuration to exit code."""

    def __init__(self, service: Service, settings: Settings) -> None:
        self._service = service
        self._settings = settings
        self._stopping = asyncio.Event()
        self._hurry = asyncio.Event()
        self._started = False
        self._failed = False
        self.mesh = self._make_mesh()
        called = [kind for kind in service.follows if kind != service.kind]  # gateways try verifiers for all
        self._reach = Reach(self.mesh.registry, called, self.mesh.tasks)
        self._probes = self._make_probes()

    async def run(self) -> int:
        """Serves until told to stop; the exit code, or `ConfigError` or `CannotStart` from the start."""
        self._catch_signals()
        self._use_certificates()
        loop = asyncio.get_running_loop()
        _tasks.set_function(lambda: len(asyncio.all_tasks(loop)))
        _ready.set_function(lambda: self.mesh.registry.state is State.READY)
        _build.labels(version("outrider")).set(1)
        try:
            if await self._unless_stopped(self._start()):
                await self._stopping.wait()
        finally:
            await self._stop()
        return 1 if self._failed else 0

    def fail(self, error: BaseException) -> None:
        """Ends the process soon, with exit code 1: an essential task or thread died."""
        self._failed = True
        self._stopping.set()
        self._hurry.set()

    def ask_to_stop(self) -> None:
        """Drains and stops; a second call stops without draining."""
        if self._stopping.is_set():
            self._hurry.set()
        self._stopping.set()

    def _make_mesh(self) -> Mesh:
        settings, kind = self._settings, self._service.kind
        instance = settings.instance or f"{kind}-{token_hex(4)}"
        configure_logs(settings.log_level, settings.log_format, service=kind, instance=instance)
        start_audit(kind, instance, settings.audit_log)
        start_timeline(kind, instance, settings.timeline)
        if settings.metrics_names == "both":
            use_vllm_names()
        tasks = Tasks(self.fail)
        bus = Bus(tasks, settings.nats_replicas)
        self._clock = MeshClock(bus)
        certificates = mesh_certificates(settings, kind)
        socket = new_socket(settings.sockets, private=certificates is not None) if self._service.local else None
        return Mesh(
            instance=instance,
            settings=settings,
            bus=bus,
            rpc=Server(settings.host, self._service.rpc_port(settings), socket, certificates=certificates),
            registry=Registry(bus, kind, instance, self._status, tasks, follows=self._service.follows),
            telemetry=start_tracing(kind, instance, settings.trace_exporter, settings.trace_ratio),
            tasks=tasks,
            certificates=certificates,
            clock=self._clock,
        )

    def _make_probes(self) -> Probes:
        settings, certificates = self._settings, self.mesh.certificates
        if settings.metrics_tls and certificates is None:
            raise ConfigError(
                "metrics_tls is set and tls_certificate is not: the metrics port needs a certificate for TLS"
            )
        tls = ServerContext(certificates, ["http/1.1"]).context if settings.metrics_tls and certificates else None
        return Probes(settings.host, settings.metrics_port, lambda: str(self.mesh.registry.state), tls)

    def _use_certificates(self) -> None:
        certificates = self.mesh.certificates
        if certificates is not None:
            secure_channels(certificates)
            self.mesh.tasks.spawn(certificates.follow(), "certificates")

    def _catch_signals(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self.ask_to_stop)

    def _status(self) -> dict[str, Any]:
        own: dict[str, Any] = {"pid": os.getpid(), "metrics_port": self._probes.port} | self._reach.status
        if self.mesh.rpc.socket is not None:
            own["socket"] = str(self.mesh.rpc.socket)
        if self._settings.residency:
            own["residency"] = self._settings.residency
        if self._clock.wrong:
            own["clock_error_s"] = round(self._clock.error_s)
        return own | (self._service.status() if self._started else {})

    async def _start(self) -> None:
        began = time.monotonic()
        try:
            await self._join()
            erasures = await self._read_erasures()
            await self._service.start(self.mesh)
            self._started = True
            await self._follow_erasures(erasures)
            _limit_garbage_collections()
            give_memory_back()
        except OutriderError as error:
            raise CannotStart(error.message) from error
        await self.mesh.rpc.set_serving(True)
        self.mesh.registry.set_state(State.READY)
        _log.info(
            "ready",
            address=self.mesh.registry.address,
            probes=f"{self._settings.host}:{self._probes.port}",
            seconds=round(time.monotonic() - began, 2),
        )

    async def _join(self) -> None:
        mesh = self.mesh
        await mesh.rpc.start()
        await self._probes.start()
        login = find_login(self._settings.nats_credentials, self._service.kind)
        trust = trust_of(mesh.certificates)
        await mesh.bus.connect(self._settings.nats_url, mesh.instance, self._settings.nats_wait_s, login, trust)
        await self._clock.measure()
        mesh.tasks.spawn(self._clock.follow(), "clock")
        mesh.registry.address = advertised(self._settings, mesh.rpc.port)
        self._reach.start()
        await mesh.registry.start()

    async def _read_erasures(self) -> Erasures:
        """The erasures of tenants; those so far do not matter to a process that has nothing yet."""
        erasures = Erasures(self.mesh.bus, self._service.kind, self.mesh.instance, self._erase)
        if not self._service.lasting:
            with suppress(Unavailable):
                await erasures.pass_over()
        return erasures

    async def _erase(self, tenant: str, before: float) -> Mapping[str, int]:
        counts = await self._service.erase(tenant, before)
        gc.collect()
        give_memory_back()
        return counts

    async def _follow_erasures(self, erasures: Erasures) -> None:
        """Erases what was erased while this process was away, before it serves; then follows further erasures."""
        if self._service.lasting:
            try:
                await erasures.apply()
            except Unavailable as error:
                _log.warning("erasures of tenants cannot be read, and are applied later", why=error.message)
        self.mesh.tasks.spawn(erasures.follow(), "erasures")

    async def _stop(self) -> None:
        mesh = self.mesh
        if self._started:
            await self._drain()
        grace = 0.0 if self._hurry.is_set() else _GRACE_S
        await self._bounded("calls", mesh.rpc.stop(grace), grace + _GRACE_S, _GRACE_S)
        if self._started:
            await self._bounded("stop", self._service.stop(), self._settings.drain_s, _GRACE_S)
        mesh.registry.leave()
        await mesh.bus.close()
        await mesh.tasks.cancel()
        await close_channels()
        await self._probes.stop()
        await asyncio.to_thread(mesh.telemetry.close)
        await asyncio.to_thread(stop_audit)
        _log.info("stopped")

    async def _drain(self) -> None:
        _log.info("draining")
        self.mesh.registry.set_state(State.DRAINING)
        await self.mesh.rpc.set_serving(False)
        await self._bounded("drain", self._service.drain(), self._settings.drain_s, 0)

    async def _unless_stopped(self, work: Coroutine[Any, Any, None]) -> bool:
        """Whether ``work`` ended before the process was asked to stop; if not, it is cancelled."""
        return await _ends_in_time(work, self._stopping, None, 0)

    async def _bounded(
        self, step: str, work: Coroutine[Any, Any, None], seconds: float, hurried_seconds: float
    ) -> None:
        """Gives ``work`` its ``seconds``, in a hurry ``hurried_seconds``; logs its failure."""
        try:
            if not await _ends_in_time(work, self._hurry, seconds, hurried_seconds):
                _log.warning("cut short", step=step)
        except Exception:
            self._failed = True
            _log.exception("failed while stopping", step=step)


def _limit_garbage_collections() -> None:
    """Excludes objects loaded at start from garbage collections, and makes collections rare: each halts all work.

    Objects made for every request should therefore form no cycles. Services turn collections off while they start.
    """
    gc.collect()
    gc.freeze()
    gc.enable()
    gc.set_threshold(_COLLECT_AFTER)


async def _ends_in_time(
    work: Coroutine[Any, Any, None], event: asyncio.Event, timeout: float | None, after: float
) -> bool:
    """Whether ``work`` ended within ``timeout`` seconds and ``after`` seconds of ``event``; if not it is cancelled."""
    task = asyncio.create_task(work)
    signalled = asyncio.create_task(event.wait())
    try:
        await asyncio.wait({task, signalled}, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        if signalled.done():
            await asyncio.wait({task}, timeout=after)
        if task.done():
            task.result()
            return True
        return False
    finally:
        signalled.cancel()
        if not task.done():
            task.cancel()
            await asyncio.wait({task}, timeout=1.0)
