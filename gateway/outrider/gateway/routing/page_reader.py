"""Reads the page news of verifiers into a page map."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field

import msgspec
from outrider.gateway import metrics
from outrider.gateway.routing.page_map import PageMap
from outrider.mesh.bus import Bus, Message
from outrider.mesh.errors import OutriderError
from outrider.mesh.registry import Member, Registry
from outrider.mesh.rpc import call, stub
from outrider.mesh.tasks import Tasks
from outrider.mesh.telemetry import get_logger
from outrider.v1 import verifier_pb2 as pb
from outrider.v1.verifier_pb2_grpc import VerifierStub
from outrider.wire.page_news import ALL_SUBJECTS, PageNews, decode_news, split_names

_RENEW_S = 15.0
"""Seconds between requests for pages; verifiers publish page news for four times as long after each."""
_GRACE_S = 0.3
"""Seconds that page news may arrive after the announcement that counts them."""
_RETRY_S = 1.0
_CALL_S = 5.0
_MOST_WAITING = 256

_log = get_logger("routing")


@dataclass(slots=True, eq=False)
class _Verifier:
    """A verifier, and the epoch and number of the last news in the page map; news wait while it is asked for pages."""

    member: Member
    epoch: str = ""
    number: int = 0
    asking: bool = False
    waiting: deque[PageNews] = field(default_factory=lambda: deque(maxlen=_MOST_WAITING))


class PageReader:
    """Keeps a `PageMap` up to date with the page news of verifiers.

    If a verifier's news have a gap, the reader asks that verifier for all its pages. Verifiers without page news are
    ignored. All methods run in the event loop.
    """

    def __init__(self, bus: Bus, registry: Registry, tasks: Tasks, pages: PageMap) -> None:
        self._bus, self._registry, self._spawn, self._pages = bus, registry, tasks.spawn, pages
        self._verifiers: dict[str, _Verifier] = {}

    async def run(self) -> None:
        """Reads news until it is cancelled."""
        await self._bus.subscribe(ALL_SUBJECTS, self.hear)
        self._registry.on_change("verifier", self._on_members)
        self._on_members(self._registry.members("verifier"))
        while True:
            await asyncio.sleep(_RENEW_S)
            metrics.known_pages.set(len(self._pages))
            for verifier in list(self._verifiers.values()):
                self._ask(verifier, verifier.epoch)

    def position(self, instance: str) -> tuple[str, int]:
        """Epoch and number of the last news of a verifier that are in the page map."""
        verifier = self._verifiers[instance]
        return verifier.epoch, verifier.number

    def hear(self, message: Message) -> None:
        """Applies news to the page map, in the order of their numbers."""
        try:
            news = decode_news(message.data)
        except msgspec.DecodeError:
            _log.warning("news of pages could not be read", subject=message.subject, bytes=len(message.data))
            return
        if (verifier := self._verifiers.get(news.instance)) is not None:
            self._take(verifier, news)

    def _take(self, verifier: _Verifier, news: PageNews) -> None:
        if verifier.asking:
            verifier.waiting.append(news)
        elif news.epoch != verifier.epoch or news.number > verifier.number + 1:
            metrics.page_gaps.inc()
            verifier.waiting.append(news)
            self._ask(verifier, "")
        elif news.number > verifier.number:
            verifier.number = news.number
            evicted, stored = split_names(news.evicted), split_names(news.stored)
            self._pages.drop(news.instance, evicted)
            self._pages.add(news.instance, stored)
            metrics.page_news.labels("evicted").inc(len(evicted))
            metrics.page_news.labels("stored").inc(len(stored))

    def _on_members(self, members: list[Member]) -> None:
        present = {member.instance: member for member in members if "page_epoch" in member.status}
        for instance in [
            name for name, each in self._verifiers.items() if not _is_same_process(each, present.get(name))
        ]:
            del self._verifiers[instance]
            self._pages.forget(instance)
        for instance, member in present.items():
            if (verifier := self._verifiers.get(instance)) is None:
                verifier = self._verifiers[instance] = _Verifier(member)
                self._ask(verifier, "")
            elif _behind(verifier, member):
                asyncio.get_running_loop().call_later(_GRACE_S, self._check_news, verifier, member)

    def _check_news(self, verifier: _Verifier, member: Member) -> None:
        """Asks for all pages if the news that an announcement counted have not arrived: the last news may be lost."""
        if self._verifiers.get(member.instance) is verifier and not verifier.asking and _behind(verifier, member):
            metrics.page_gaps.inc()
            self._ask(verifier, "")

    def _ask(self, verifier: _Verifier, epoch: str) -> None:
        if not verifier.asking:
            verifier.asking = True
            self._spawn(self._fetch(verifier, epoch), f"pages of {verifier.member.instance}")

    async def _fetch(self, verifier: _Verifier, epoch: str) -> None:
        """Asks ``verifier`` for its pages while it is present; it does not send them if its epoch is ``epoch``."""
        instance, address = verifier.member.instance, verifier.member.address
        while self._verifiers.get(instance) is verifier:
            try:
                ask = stub(VerifierStub, address, "verifier").Pages
                pages = await call(ask, pb.PagesRequest(epoch=epoch), _CALL_S)
            except OutriderError as error:
                _log.debug("a verifier did not tell its pages", verifier=instance, code=error.code.name)
                await asyncio.sleep(_RETRY_S)
                continue
            if self._verifiers.get(instance) is verifier:
                self._apply(verifier, pages)
            return

    def _apply(self, verifier: _Verifier, pages: pb.PagesResponse) -> None:
        """Puts all pages of ``verifier``, and the news that waited for them, into the page map."""
        if pages.full:
            verifier.epoch, verifier.number = pages.epoch, pages.number
            self._pages.replace(verifier.member.instance, split_names(pages.pages))
            metrics.page_snapshots.inc()
        verifier.asking = False
        waiting, verifier.waiting = verifier.waiting, deque(maxlen=_MOST_WAITING)
        for news in waiting:
            if news.epoch == verifier.epoch:
                self._take(verifier, news)


def _is_same_process(verifier: _Verifier, member: Member | None) -> bool:
    """Whether ``member`` is the process of ``verifier``."""
    if member is None:
        return False
    earlier = verifier.member
    return (earlier.address, earlier.status.get("pid")) == (member.address, member.status.get("pid"))


def _behind(verifier: _Verifier, member: Member) -> bool:
    """Whether an announcement counts news that have not arrived."""
    status = member.status
    return status["page_epoch"] == verifier.epoch and int(status.get("page_news", 0)) > verifier.number
