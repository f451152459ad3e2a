"""Says when a head's guesses are right no more often than chance."""

from __future__ import annotations

from outrider.engine.logs import get_logger

# Of a hundred first guesses, heads on their own target are right in tens, heads of another target in a few.
_GUESSES, _LEAST = 256, 0.1

_log = get_logger("speculation")


class Alarm:
    """Counts first guesses over windows of `_GUESSES`; warns once of a window with fewer right ones than `_LEAST`.

    Args:
        head: names the head in the warning.

    Attributes:
        guesses: first guesses of this window.
        right: the right ones among them.
        lost: whether the last whole window had fewer right ones than `_LEAST`.
        raised: whether there was a warning.
    """

    def __init__(self, head: str) -> None:
        self.guesses = self.right = 0
        self.lost = self.raised = False
        self._head = head

    def count(self, right: bool) -> None:
        """Counts a sequence's first guess of a step."""
        self.guesses, self.right = self.guesses + 1, self.right + right
        if self.guesses < _GUESSES:
            return
        self.lost = self.right < _LEAST * _GUESSES
        if self.lost and not self.raised:
            self.raised = True
            _log.warning(
                "a head guesses no better than chance: it may be of another target, other layers or another template",
                head=self._head,
                guesses=self.guesses,
                right=self.right,
            )
        self.guesses = self.right = 0
