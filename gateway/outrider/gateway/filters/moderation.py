"""The filter ``moderation``: asks a service of the shape of OpenAI's moderation API about each window of an answer."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Any

import httpx
import msgspec
from msgspec import Meta
from outrider.gateway.filters.filter import Passed
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


class Moderation:
    """The plug-in: makes filters, which share the connections to the service.

    Raises `ConfigError` for options that do not fit, or an environment without the key.
    """

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._options = read_options("moderation", options, ModerationOptions)
        self._client = httpx.AsyncClient(headers=_key_header(self._options.key_variable), timeout=None)

    def __call__(self) -> ModerationFilter:
        """The filter of one answer."""
        return ModerationFilter(self._ask, self._options.window, self._options.overlap)

    async def close(self) -> None:
        """Closes the connections."""
        await self._client.aclose()

    async def _ask(self, text: str) -> str:
        """An `Ask`; raises `httpx.HTTPError` or `msgspec.ValidationError` if the service does not answer as it must."""
        body = {"input": text} | ({"model": self._options.model} if self._options.model else {})
        response = await self._client.post(self._options.url, json=body)
        response.raise_for_status()
        return self._reason(msgspec.json.decode(response.content, type=_Answer).results[0])

    def _reason(self, result: _Result) -> str:
        wanted = self._options.categories
        categories = [name for name, flagged in result.categories.items() if flagged and (name in wanted or not wanted)]
        if categories:
            return categories[0]
        return "flagged" if result.flagged and not wanted else ""


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


def _key_header(variable: str) -> dict[str, str]:
    if not variable:
        return {}
    if not (key := os.environ.get(variable)):
        raise ConfigError(f"filter_options of moderation: the variable {variable} is not set")
    return {"authorization": f"Bearer {key}"}
