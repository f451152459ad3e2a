"""A verifier's engine and the mesh's KV caches, put together."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

from outrider.mesh.service import Mesh
from outrider.models.fingerprint import page_fingerprint
from outrider.verifier.cache_link import CacheLink, Terms
from outrider.verifier.cache_metrics import CACHES
from outrider.verifier.cache_peers import Peers
from outrider.verifier.caching import CachedPages, Wanted, page_bytes
from outrider.verifier.engine import Engine
from outrider.verifier.loop import EngineThread
from outrider.verifier.runner import Runner
from outrider.verifier.settings import VerifierSettings


def attach(
    mesh: Mesh,
    settings: VerifierSettings,
    directory: Path,
    runner: Runner,
    engine: Engine,
    thread: EngineThread,
    token_s: float,
) -> None:
    """Has ``engine`` fetch pages from KV caches and offer its own, as soon as there are any.

    Args:
        mesh: where KV caches are found.
        settings: of the verifier.
        directory: of the target.
        runner: with its pages.
        engine: not started yet.
        thread: the engine's.
        token_s: measured seconds of computing a token of a prompt.
    """
    met = asyncio.Event()
    peers = Peers(mesh.registry, settings.kv_cache_shared, lambda: _changed(link, met))
    size = page_bytes(runner.pool)
    terms = Terms(settings.kv_cache, settings.kv_cache_deadline_s, settings.page_size, size, token_s)
    link = CacheLink(peers, mesh.tasks, terms, lambda wanted, pages: thread.post(partial(arrive, wanted, pages)))
    cache = engine.cache = CachedPages(runner.pool, engine.scheduler, link)

    def arrive(wanted: Wanted, pages: list[bytes]) -> None:
        cache.arrive(wanted, pages)
        engine.resume(wanted.number)

    mesh.tasks.spawn(_open(link, met, settings, directory, runner), "KV cache")
    peers.start()


def _changed(link: CacheLink, met: asyncio.Event) -> None:
    met.set()
    link.offers.forget()
    CACHES.set(len(link.instances))


async def _open(
    link: CacheLink, met: asyncio.Event, settings: VerifierSettings, directory: Path, runner: Runner
) -> None:
    """Reads the weights only where there is a cache to name pages for."""
    await met.wait()
    quantization, determinism = settings.quantization, settings.determinism
    fingerprint = await asyncio.to_thread(
        page_fingerprint, directory, runner.model, runner.pool, quantization=quantization, determinism=determinism
    )
    link.open(fingerprint)
    CACHES.set(len(link.instances))
