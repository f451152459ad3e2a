"""The filter ``moderation``: asks a service of the shape of OpenAI's moderation API about each window of an answer."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Any

import httpx
import msgspec
from msgspec import Meta
from outrider.gateway.filters.filter import MakeFilter, Passed
from outrider.gateway.filters.installed import read_options
from outrider.mesh.errors import ConfigError

Ask = Callable[[str], Awaitable[str]]
"""What a text is flagged for, or an empty string."""


class ModerationOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Options of the filter. ``window`` and ``overlap`` are in characters.

    ``key_variable`` names the environment variable with the service's API key. Of what a text is flagged for, only
    ``categories`` count, if any are given.
    """

    url: Annotated[str, Meta(pattern="^https?://")]
    model: str = ""
    key_variable: str = ""
    categories: frozenset[str] = frozenset()
    window: Annotated[int, Meta(ge=1, le=100_000)] = 400
    overlap: Annotated[int, Meta(ge=0, le=100_000)] = 100


class _Result(msgspec.Struct):
    flagged: bool
    categories: dict[str, bool]


class _Answer(msgspec.Struct):
    results: Annotated[list[_Result], Meta(min_length=1)]


def moderation(options: Mapping[str, Any]) -> MakeFilter:
    """The plug-in; raises `ConfigError` for options that do not fit, or an environment without the key."""
    own = read_options("moderation", options, ModerationOptions)
    ask = _Service(own).ask
    return lambda: ModerationFilter(ask, own.window, own.overlap)


class ModerationFilter:
    """Reads one answer in windows of ``window`` characters; ``ask`` gets ``overlap`` characters before each as well.

    A window's text passes once the service has answered. Where windows begin depends on the text alone.
    """

    def __init__(self, ask: Ask, window: int, overlap: int) -> None:
        self._ask, self._window, self._overlap = ask, window, overlap
        self._before = self.held = ""

    def feed(self, text: str) -> Passed | Awaitable[Passed]:
        """Holds ``text`` until a window is full."""
        self.held += text
        return Passed() if len(self.held) < self._window else self._check(self._window)

    def end(self) -> Passed | Awaitable[Passed]:
        """Checks the last window, which may be short."""
        return self._check(1) if self.held else Passed()

    async def _check(self, least: int) -> Passed:
        """Checks windows while at least ``least`` characters are held."""
        passed = ""
        while len(self.held) >= least:
            window = self.held[: self._window]
            if reason := await self._ask(self._before + window):
                return Passed(passed, ended=reason)
            passed += window
            self._before = (self._before + window)[-self._overlap :] if self._overlap else ""
            self.held = self.held[len(window) :]
        return Passed(passed)


class _Service:
    """The service; all answers share its connections."""

    def __init__(self, options: ModerationOptions) -> None:
        self._options = options
        headers = {}
        if options.key_variable:
            if not (key := os.environ.get(options.key_variable)):
                raise ConfigError(f"filter_options of moderation: the variable {options.key_variable} is not set")
            headers["authorization"] = f"Bearer {key}"
        self._client = httpx.AsyncClient(headers=headers, timeout=None)

    async def ask(self, text: str) -> str:
        """An `Ask`; raises `httpx.HTTPError` or `msgspec.ValidationError` if the service does not answer as it must."""
        body = {"input": text} | ({"model": self._options.model} if self._options.model else {})
        response = await self._client.post(self._options.url, json=body)
        response.raise_for_status()
        result = msgspec.json.decode(response.content, type=_Answer).results[0]
        return self._reason(result)

    def _reason(self, result: _Result) -> str:
        categories = [name for name, flagged in result.categories.items() if flagged]
        counted = [name for name in categories if name in self._options.categories or not self._options.categories]
        if counted:
            return counted[0]
        return "flagged" if result.flagged and not self._options.categories else ""
