"""News of the verifier's pages, as long as somebody asks for them."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from secrets import token_hex

from outrider.mesh.bus import Bus
from outrider.mesh.tasks import Tasks
from outrider.mesh.telemetry import counter
from outrider.mesh.worker import Inbox
from outrider.models.pages import PageTable
from outrider.v1 import verifier_pb2 as pb
from outrider.wire.page_news import NAME_BYTES, PageNews, encode_news, join_names, news_subject

LISTENED_S = 60.0
"""For so long news are published after somebody asked for pages."""
_EVERY_S = 0.05
_MOST = 16384
"""Most pages that one message tells of."""

_TOLD = counter("verifier_page_news", "Pages that news were told of, by what became of them.", ["change"])


class PageAnnouncer:
    """Publishes what becomes of pages, in batches, and tells all pages to who has just come or has missed some.

    While nobody has asked for `LISTENED_S` seconds, nothing is noted and nothing published. Only in the event loop.

    Attributes:
        epoch: of the news that are published now; empty while there are none.
        number: of the last news.
    """

    def __init__(self, bus: Bus, tasks: Tasks, instance: str, inbox: Inbox, pages: PageTable) -> None:
        self._bus, self._spawn, self._instance = bus, tasks.spawn, instance
        self._inbox, self._pages = inbox, pages
        self._until = 0.0
        self.epoch, self.number = "", 0

    async def tell(self, epoch: str) -> pb.PagesResponse:
        """All pages, unless the asker knows those of this ``epoch``; news are published from now on."""
        self._until = time.monotonic() + LISTENED_S
        if not self.epoch:
            self.epoch, self.number = token_hex(8), 0
            self._spawn(self._publish_for_a_while(), "news of pages")
        if epoch == self.epoch:
            return pb.PagesResponse(epoch=epoch, number=self.number)
        told = pb.PagesResponse(epoch=self.epoch, number=self.number, full=True)
        told.pages = join_names(await asyncio.wrap_future(self._inbox.call(self._begin)))
        return told

    def _begin(self) -> list[bytes]:
        """In the engine's thread: notes changes, and lists what is there. Changes that are noted and not yet published
        may be in the list as well, which does no harm: the last word about a page holds."""
        if self._pages.changes is None:
            self._pages.changes = deque()
        return self._pages.published

    def _end(self) -> None:
        self._pages.changes = None

    async def _publish_for_a_while(self) -> None:
        while time.monotonic() < self._until:
            await asyncio.sleep(_EVERY_S)
            while changes := self._pages.changes:
                self._publish(changes)
        self.epoch = ""
        self._inbox.post(self._end)

    def _publish(self, changes: deque[tuple[bytes, bool]]) -> None:
        last: dict[bytes, bool] = {}
        while changes and len(last) < _MOST:
            name, there = changes.popleft()
            last[name[:NAME_BYTES]] = there
        stored = [name for name, there in last.items() if there]
        evicted = [name for name, there in last.items() if not there]
        self.number += 1
        news = PageNews(self._instance, self.epoch, self.number, join_names(stored), join_names(evicted))
        self._bus.publish(news_subject(self._instance), encode_news(news))
        _TOLD.labels("stored").inc(len(stored))
        _TOLD.labels("evicted").inc(len(evicted))
