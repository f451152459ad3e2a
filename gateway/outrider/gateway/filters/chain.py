"""Several filters in a row, with a time limit for each call and an answer to the failure of a filter."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence

import msgspec
from outrider.gateway import metrics
from outrider.gateway.filters.filter import MakeFilter, Passed
from outrider.gateway.filters.report import tell_nobody
from outrider.mesh.errors import Unavailable
from outrider.mesh.telemetry import get_logger

_log = get_logger("filters")


class Setup(msgspec.Struct, frozen=True):
    """A filter as it is set up: its name, how one is made, seconds for a call, and whether it reads prompts or answers.

    If a call fails, its text is passed if the setup is to ``fail_open``, and the answer fails otherwise.
    """

    name: str
    make: MakeFilter
    timeout_s: float
    fail_open: bool
    prompts: bool = False
    answers: bool = True


class Chain:
    """The filters of one text: each reads what the one before it passes. ``report`` gets changes and the end."""

    def __init__(self, setups: Sequence[Setup], report: Callable[[Passed], None] = tell_nobody) -> None:
        self._stages, self._report = [_Stage(setup) for setup in setups], report

    async def feed(self, text: str) -> Passed:
        """Reads the next ``text``; raises `Unavailable` if a filter fails that is not to fail open."""
        return await self._run(text, final=False)

    async def end(self) -> Passed:
        """Decides all that is held, and begins anew: text that follows is another text. Raises as `feed`."""
        return await self._run("", final=True)

    async def _run(self, text: str, *, final: bool) -> Passed:
        """Once a filter ends the answer, the filters behind it decide all that they hold."""
        changes: list[str] = []
        ended = ""
        for stage in self._stages:
            passed = await stage.run(text, final=final)
            text, final = passed.text, final or bool(passed.ended)
            changes += passed.changes
            ended = passed.ended or ended
        whole = Passed(text, tuple(changes), ended)
        if changes or ended:
            self._report(whole)
        return whole


class _Stage:
    """One filter of a chain; its results name changes and reasons as ``filter.what``."""

    def __init__(self, setup: Setup) -> None:
        self._setup, self._filter = setup, setup.make()
        self._has_changed = False

    async def run(self, text: str, *, final: bool) -> Passed:
        """Feeds ``text``; if it is ``final``, lets the filter decide what it holds."""
        passed = await self._call(lambda: self._filter.feed(text), text) if text else Passed()
        if final and not passed.ended:
            last = await self._call(self._filter.end, "")
            passed = Passed(passed.text + last.text, passed.changes + last.changes, last.ended)
        if final:
            self._filter = self._setup.make()
        return self._counted(passed)

    async def _call(self, call: Callable[[], Passed | Awaitable[Passed]], text: str) -> Passed:
        undecided, began = self._filter.held + text, time.perf_counter()
        try:
            passed = call()
            if isinstance(passed, Passed):
                return passed
            async with asyncio.timeout(self._setup.timeout_s):
                return await passed
        except Exception as error:
            return self._on_failure(error, undecided)
        finally:
            metrics.filter_seconds.labels(self._setup.name).inc(time.perf_counter() - began)

    def _on_failure(self, error: Exception, undecided: str) -> Passed:
        name = self._setup.name
        metrics.filtered.labels(name, "failed").inc()
        _log.warning("a filter failed", filter=name, error=type(error).__name__, why=str(error))
        if not self._setup.fail_open:
            raise Unavailable("a text could not be filtered", retry_after=1.0) from error
        self._filter = self._setup.make()
        return Passed(undecided)

    def _counted(self, passed: Passed) -> Passed:
        if not passed.changes and not passed.ended:
            return passed
        name = self._setup.name
        if passed.changes and not self._has_changed:
            self._has_changed = True
            metrics.filtered.labels(name, "changed").inc()
        if passed.ended:
            metrics.filtered.labels(name, "ended").inc()
        changes = tuple(f"{name}.{what}" for what in passed.changes)
        return Passed(passed.text, changes, passed.ended and f"{name}.{passed.ended}")
