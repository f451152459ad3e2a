"""News of the verifier's pages, published while gateways ask for them."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from secrets import token_hex

from outrider.engine.pages.page_table import PageTable
from outrider.engine.worker import Inbox
from outrider.mesh.bus import Bus
from outrider.mesh.tasks import Tasks
from outrider.mesh.telemetry import counter
from outrider.v1 import verifier_pb2 as pb
from outrider.wire.page_news import NAME_BYTES, PageNews, encode_news, join_names, news_subject

LISTENED_S = 60.0
"""Seconds for which news are published after the last question for pages."""
_EVERY_S = 0.05
_MOST_PAGES = 16384
"""Most pages in one message."""

_CHANGES = counter("verifier_page_news", "Changes of pages that were published, by kind.", ["change"])


class PageAnnouncer:
    """Publishes changes of pages in batches, and lists all pages for a gateway that is new or has missed news.

    After `LISTENED_S` seconds without a question, changes are neither recorded nor published. Only in the event loop.

    Attributes:
        epoch: epoch of the news published now; empty while none are published.
        number: number of the last message.
    """

    def __init__(self, bus: Bus, tasks: Tasks, instance: str, inbox: Inbox, pages: PageTable) -> None:
        self._bus, self._spawn, self._instance = bus, tasks.spawn, instance
        self._inbox, self._pages = inbox, pages
        self._until = 0.0
        self.epoch, self.number = "", 0

    async def list_pages(self, epoch: str) -> pb.PagesResponse:
        """All pages, or none if the caller follows the current ``epoch``; news are published from now on."""
        self._until = time.monotonic() + LISTENED_S
        if not self.epoch:
            self.epoch, self.number = token_hex(8), 0
            self._spawn(self._publish_for_a_while(), "news of pages")
        if epoch == self.epoch:
            return pb.PagesResponse(epoch=epoch, number=self.number)
        response = pb.PagesResponse(epoch=self.epoch, number=self.number, full=True)
        response.pages = join_names(await asyncio.wrap_future(self._inbox.call(self._begin)))
        return response

    def _begin(self) -> list[bytes]:
        """In the engine's thread: starts to record changes, and lists the pages.

        Recorded changes may be in the list before they are published. That does no harm: the last change of a page
        holds.
        """
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
        while changes and len(last) < _MOST_PAGES:
            name, present = changes.popleft()
            last[name[:NAME_BYTES]] = present
        stored = [name for name, present in last.items() if present]
        evicted = [name for name, present in last.items() if not present]
        self.number += 1
        news = PageNews(self._instance, self.epoch, self.number, join_names(stored), join_names(evicted))
        self._bus.publish(news_subject(self._instance), encode_news(news))
        _CHANGES.labels("stored").inc(len(stored))
        _CHANGES.labels("evicted").inc(len(evicted))
