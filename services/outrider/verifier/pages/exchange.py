"""A verifier's engine, the mesh's KV caches and other verifiers, put together."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

from outrider.mesh.service import Mesh
from outrider.models.fingerprint import page_fingerprint
from outrider.v1.kvcache_pb2_grpc import add_KvCacheServicer_to_server
from outrider.verifier.decode.engine import Engine
from outrider.verifier.decode.engine_thread import EngineThread
from outrider.verifier.decode.runner import Runner
from outrider.verifier.pages.cached_pages import CachedPages, Wanted, page_bytes
from outrider.verifier.pages.handover import Givers, Handover, HandoverTerms
from outrider.verifier.pages.link import CacheLink, Terms
from outrider.verifier.pages.metrics import CACHES
from outrider.verifier.pages.page_server import HandedPages, PageServer
from outrider.verifier.pages.peers import Peers
from outrider.verifier.pages.receiver import Receiver
from outrider.verifier.requests.conversion import Served
from outrider.verifier.settings import VerifierSettings


class Exchange:
    """Has ``engine`` fetch pages from KV caches and other verifiers and offer its own, as soon as there are any.

    Args:
        mesh: where others are found.
        settings: of the verifier.
        directory: of the target.
        runner: with its pages.
        engine: not started yet.
        thread: the engine's.
        served: what requests are checked against.
        token_s: measured seconds of computing a token of a prompt.
    """

    def __init__(
        self,
        mesh: Mesh,
        settings: VerifierSettings,
        directory: Path,
        runner: Runner,
        engine: Engine,
        thread: EngineThread,
        served: Served,
        token_s: float,
    ) -> None:
        self._mesh, self._settings, self._directory, self._runner = mesh, settings, directory, runner
        self._met = asyncio.Event()
        sockets = bool(settings.sockets)
        self._peers = Peers(mesh.registry, settings.kv_cache_shared, sockets, self._changed)
        self._givers = Givers(mesh.registry, settings.role, sockets, self._met.set)
        size, page_size = page_bytes(runner.pool), settings.page_size
        receiver = Receiver(page_size, size, mesh.tasks.spawn)
        terms = Terms(settings.kv_cache, settings.kv_cache_deadline_s, page_size, size, token_s)
        handing = HandoverTerms(settings.handover, settings.handover_deadline_s, page_size, size)
        handover = Handover(self._givers, receiver, handing)

        def ended(wanted: Wanted) -> None:
            cache.ended(wanted)
            engine.resume(wanted.number)

        self._link = CacheLink(
            self._peers,
            handover,
            receiver,
            mesh.tasks,
            terms,
            lambda wanted, pages: thread.post(partial(cache.arrive, wanted, pages)),
            lambda wanted: thread.post(partial(ended, wanted)),
        )
        price = partial(engine.estimate.held_up, engine.scheduler)
        cache = CachedPages(runner.pool, engine.scheduler, self._link, price)
        engine.cache = handed = HandedPages(cache, runner.pool)
        self._server = PageServer(handed, runner.pool, thread, engine, served, token_s)

    def start(self) -> None:
        """Begins to look for others."""
        if self._settings.role != "decode":
            add_KvCacheServicer_to_server(self._server, self._mesh.rpc)
        self._mesh.tasks.spawn(self._open(), "exchange of pages")
        if self._settings.kv_cache != "off":
            self._peers.start()
        self._givers.start()

    def status(self) -> dict[str, Any]:
        """What the registry tells of it: the verifier's role, and of what its pages are once that is known."""
        return {"role": self._settings.role, "pages_of": self._server.fingerprint.hex()}

    def drain(self) -> None:
        """Takes no more prompts of others."""
        self._server.draining = True

    def _changed(self) -> None:
        self._met.set()
        self._link.offers.forget()
        CACHES.set(len(self._link.instances))

    async def _open(self) -> None:
        """Reads the weights only where there is somebody to name pages for."""
        await self._met.wait()
        fingerprint = await asyncio.to_thread(
            page_fingerprint,
            self._directory,
            self._runner.model,
            self._runner.pool,
            quantization=self._settings.quantization,
            determinism=self._settings.determinism,
        )
        self._server.fingerprint = fingerprint
        self._link.open(fingerprint)
        CACHES.set(len(self._link.instances))
