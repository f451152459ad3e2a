"""The KV cache as a service."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Iterable
from typing import Any, ClassVar

import grpc
from outrider.kvcache.blob import DamagedPage, Header, owner_of
from outrider.kvcache.files import DiskTier
from outrider.kvcache.index import Index
from outrider.kvcache.leases import Leases, Place
from outrider.kvcache.metrics import BYTES, HIT_TOKENS, LOOKED_UP, PAGES, REFUSED, SENT
from outrider.kvcache.settings import KvCacheSettings
from outrider.kvcache.store import FoundPage, IndexedTier, Store
from outrider.kvcache.tiers import GROUP, TierContext, TierError
from outrider.mesh import plugins
from outrider.mesh.errors import ConfigError, InvalidRequest
from outrider.mesh.service import Mesh, Service
from outrider.mesh.telemetry import get_logger
from outrider.v1 import kvcache_pb2 as pb
from outrider.v1 import kvcache_pb2_grpc as pb_grpc

_DEFAULT_QUOTA = 256 << 20
_MOST_KEYS, _KEY_BYTES = 65536, 32
_MESSAGE_BYTES = 1 << 20
"""Pages of about so many bytes share a message: a reader uses the first pages while the cache reads the next."""
_MEASURED_EVERY_S = 1.0
_EXPIRED_EVERY_S = 300.0
"""Seconds between searches for pages whose time is over; nobody may ask for such a page again."""

_log = get_logger("kvcache")


class KvCacheService(Service, pb_grpc.KvCacheServicer):
    """Stores pages for any number of verifiers. It cannot interpret pages, and no method lists them."""

    kind: ClassVar[str] = "kvcache"
    local: ClassVar[bool] = True
    lasting: ClassVar[bool] = True
    settings: ClassVar[type[KvCacheSettings]] = KvCacheSettings

    def __init__(self, settings: KvCacheSettings) -> None:
        self._settings = settings

    async def start(self, mesh: Mesh) -> None:
        """Opens the tiers and recovers their pages."""
        tiers = make_tiers(self._settings, mesh.instance)
        self._shard = next((tier.storage.shard for tier in tiers if isinstance(tier.storage, DiskTier)), mesh.instance)
        self._store = Store(tiers)
        await asyncio.to_thread(self._store.recover)
        loop = asyncio.get_running_loop()
        self._leases = Leases(
            self._settings.lease_s, lambda places: loop.run_in_executor(None, self._store.unpin, places)
        )
        mesh.tasks.spawn(self._measure(), "kvcache metrics")
        mesh.tasks.spawn(self._expire(), "kvcache expiry")
        pb_grpc.add_KvCacheServicer_to_server(self, mesh.rpc)

    def status(self) -> dict[str, Any]:
        """Status for the registry: number of pages, shard name, and path and token of the arena."""
        sizes, arena = self._store.sizes(), self._store.arena
        status: dict[str, Any] = {"pages": sum(pages for _, pages in sizes.values()), "shard": self._shard}
        return status if arena is None else status | {"arena": str(arena.path), "arena_token": arena.token.hex()}

    async def erase(self, tenant: str, before: float) -> dict[str, int]:
        """Removes the tenant's pages that are older than ``before``; counts them by tier."""
        erased = await asyncio.to_thread(self._store.erase, owner_of(tenant), before)
        return {f"pages in {tier}": pages for tier, pages in erased.items()}

    async def stop(self) -> None:
        """Moves pages from memory to tiers that outlive the process, and closes all tiers."""
        await asyncio.to_thread(self._store.close)

    async def Lookup(self, message: pb.LookupRequest, context: grpc.aio.ServicerContext) -> pb.LookupResponse:  # noqa: N802
        """Number of leading pages that the cache holds."""
        _check_keys(message.keys)
        leading = await asyncio.to_thread(self._store.leading, list(message.keys))
        LOOKED_UP.labels("yes").inc(leading)
        LOOKED_UP.labels("no").inc(len(message.keys) - leading)
        return pb.LookupResponse(leading=leading)

    async def Fetch(  # noqa: N802
        self, message: pb.FetchRequest, context: grpc.aio.ServicerContext
    ) -> AsyncIterator[pb.FetchResponse]:
        """Streams the leading pages that the cache holds."""
        _check_keys(message.keys)
        lease, places = self._leases.grant() if message.shared else (0, [])
        keys, done = list(message.keys), False
        try:
            while keys and not done:
                pages, done = await asyncio.to_thread(self._batch, keys, message.shared, places)
                yield pb.FetchResponse(pages=pages, lease=lease)
                del keys[: len(pages)]
        finally:
            self._leases.settle(lease, places)

    def _batch(self, keys: list[bytes], shared: bool, places: list[Place]) -> tuple[list[pb.Page], bool]:
        """Pages for one message, and whether it is the last."""
        pages: list[pb.Page] = []
        size = 0
        for key in keys:
            if (page := self._store.get(key, pin=shared)) is None:
                return pages, True
            if page.place is not None:
                places.append(page.place)
            pages.append(_page(key, page))
            size += page.header.size
            if size >= _MESSAGE_BYTES:
                return pages, False
        return pages, True

    async def Release(self, message: pb.ReleaseRequest, context: grpc.aio.ServicerContext) -> pb.ReleaseResponse:  # noqa: N802
        """Ends a lease."""
        self._leases.end(message.lease)
        return pb.ReleaseResponse()

    async def Store(  # noqa: N802
        self, requests: AsyncIterator[pb.StoreRequest], context: grpc.aio.ServicerContext
    ) -> pb.StoreResponse:
        """Stores pages."""
        stored = 0
        async for request in requests:
            _check_keys([page.key for page in request.pages])
            _check_pages(request.pages)
            stored += await asyncio.to_thread(self._put, request)
        return pb.StoreResponse(stored=stored)

    def _put(self, request: pb.StoreRequest) -> int:
        stored, owner, now = 0, owner_of(request.tenant), time.time()
        for page in request.pages:
            times = {"expires": now + self._settings.ttl_s, "stored": now}
            header = Header(page.checksum, len(page.data), page.tokens, page.index, page.seconds, owner=owner, **times)
            try:
                stored += self._store.put(page.key, header, page.data)
            except DamagedPage:
                REFUSED.inc()
                raise InvalidRequest("a page does not match its checksum", param="pages") from None
        return stored

    async def _measure(self) -> None:
        while True:
            for tier, (size, pages) in self._store.sizes().items():
                BYTES.labels(tier).set(size)
                PAGES.labels(tier).set(pages)
            await asyncio.sleep(_MEASURED_EVERY_S)

    async def _expire(self) -> None:
        while True:
            await asyncio.sleep(min(_EXPIRED_EVERY_S, self._settings.ttl_s))
            await asyncio.to_thread(self._store.expire)


def make_tiers(settings: KvCacheSettings, instance: str) -> list[IndexedTier]:
    """The tiers of the settings; `ConfigError` if a tier is unknown or wrongly configured."""
    for key in ("quotas", "options"):
        if unknown := sorted(getattr(settings, key).keys() - set(settings.tiers)):
            raise ConfigError(f"{key} has an entry for {', '.join(unknown)}, which tiers does not list")
    if len(set(settings.tiers)) < len(settings.tiers) or "memory" in settings.tiers[1:]:
        raise ConfigError("tiers names each tier once, and memory first")
    return [_make_tier(name, settings, instance) for name in settings.tiers]


def _make_tier(name: str, settings: KvCacheSettings, instance: str) -> IndexedTier:
    quota = settings.quotas.get(name, _DEFAULT_QUOTA)
    try:
        storage = plugins.load(GROUP, name)(TierContext(quota, instance, settings.options.get(name, {})))
    except TierError as error:
        raise ConfigError(str(error)) from None
    return IndexedTier(name, storage, Index(quota, int(quota * settings.tenant_share), time.time))


def _page(key: bytes, page: FoundPage) -> pb.Page:
    header = page.header
    HIT_TOKENS.labels(page.tier).inc(header.tokens)
    SENT.labels("grpc" if page.place is None else "shared").inc(header.size)
    return pb.Page(
        key=key,
        data=page.data,
        checksum=header.checksum,
        tokens=header.tokens,
        index=header.index,
        seconds=header.seconds,
        offset=page.offset,
        size=header.size,
        tier=page.tier,
    )


def _check_keys(keys: Any) -> None:
    if len(keys) > _MOST_KEYS:
        raise InvalidRequest(f"{len(keys)} keys; at most {_MOST_KEYS} may be asked for at once", param="keys")
    if any(len(key) != _KEY_BYTES for key in keys):
        raise InvalidRequest(f"a key has {_KEY_BYTES} bytes", param="keys")


def _check_pages(pages: Iterable[pb.Page]) -> None:
    for page in pages:
        if page.tokens < 1 or page.index < 0:
            raise InvalidRequest("a page has at least one token and an index of at least 0", param="pages")
        if not (math.isfinite(page.seconds) and page.seconds >= 0):
            raise InvalidRequest("a page's seconds are a number of at least 0", param="pages")
