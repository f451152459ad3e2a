"""The counts of one key, tenant or address, in bounded memory."""

from __future__ import annotations

from collections import OrderedDict

_MOST_TEXTS = 16
"""Prompts, and beginnings of prompts, that are counted at a time; the one that came longest ago is dropped."""
_MEMORY = 60
"""Windows over which the mean of requests forgets."""


class TextCounts:
    """Counts of the texts that came last, by their hashes."""

    def __init__(self) -> None:
        self._counts: OrderedDict[int, int] = OrderedDict()

    def add(self, text: int, amount: int) -> int:
        """Counts ``text``; returns its count."""
        count = self._counts[text] = self._counts.pop(text, 0) + amount
        if len(self._counts) > _MOST_TEXTS:
            self._counts.popitem(last=False)
        return count


class Counts:
    """Counts of one window of time, and the mean of requests in the windows before.

    Attributes:
        signals: the signals given in this window.
        suspect_until: the window up to which the caller may be slowed down.
    """

    def __init__(self, window: int) -> None:
        self._window, self._windows, self._mean = window, 0, 0.0
        self.suspect_until = -1
        self._clear()

    def roll(self, window: int) -> None:
        """Begins a new window if ``window`` is later than the present one."""
        passed = window - self._window
        if passed <= 0:
            return
        keep = 1 - 1 / _MEMORY
        self._mean = (self._mean * keep + self.requests / _MEMORY) * keep ** (passed - 1)
        self._window, self._windows = window, self._windows + passed
        self._clear()

    @property
    def usual_requests(self) -> float | None:
        """The mean of requests in a window, of those before this one; None before there have been ten.

        An exponentially weighted mean, corrected for its beginning at 0 (Kingma and Ba 2015, section 3).
        """
        if self._windows < 10:
            return None
        return self._mean / (1 - (1 - 1 / _MEMORY) ** self._windows)

    def _clear(self) -> None:
        self.requests = self.refusals = self.logprobs = 0
        self.prompts, self.beginnings = TextCounts(), TextCounts()
        self.signals: set[str] = set()
