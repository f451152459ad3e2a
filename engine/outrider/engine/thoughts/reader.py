"""Tells the text of a thought from that of the answer behind it, token by token."""

from __future__ import annotations

from collections.abc import Sequence

from outrider.engine.requests.parameters import Mark
from outrider.engine.thoughts.tracker import Phase, Tracker


class ThoughtReader:
    """Reads one answer. What it gives back for a token depends on the tokens so far, not on how they came.

    Marks leave no text. Blanks around a thought are dropped, and those in front of the answer if it ``trims``.

    Attributes:
        length: number of leading tokens that are the thought and its marks.
    """

    def __init__(self, tracker: Tracker, prompt: Sequence[int], *, trims: bool) -> None:
        self._tracker, self._place = tracker, tracker.start(prompt)
        self._opened, self._trims = self._place.phase is Phase.THINKING, trims
        self._held, self._parts = "", list[str]()
        self._said = False
        self.length = 0

    @property
    def thinking(self) -> bool:
        """Whether the tokens so far end inside a thought."""
        return self._place.phase is Phase.THINKING

    @property
    def answering(self) -> bool:
        """Whether the next token is the answer's: no thought is open, and none may begin."""
        return self._place.phase is Phase.ANSWERING

    @property
    def tokens(self) -> int:
        """Number of tokens that count as the thought's."""
        return self.length if self._opened else 0

    def take(self, token: int, text: str) -> tuple[str, bool]:
        """The text that is final behind ``token``, whose own is ``text``, and whether it is the thought's."""
        before, thought = self._place.phase, self._tracker.thought
        self._place = self._tracker.after(self._place, token)
        now = self._place.phase
        if before is Phase.ANSWERING:
            return self._answer(text), False
        self.length = self._place.read
        if before is Phase.OPENING:
            self._held += text
            if now is Phase.ANSWERING and not self._place.begin:
                self.length = 0
                return self._answer(""), False
            if now is not Phase.OPENING:
                self._opened = now is Phase.THINKING
                mark = thought.start if self._opened or thought.plain is None else thought.plain
                self._held = _behind(mark, self._held)
            return (self._think("") if now is Phase.THINKING else ""), True
        return (self._think(text) if now is Phase.THINKING else self._close(text)), True

    def stop(self) -> None:
        """Notes that a token without text has ended the answer."""
        if self._place.phase is Phase.THINKING:
            self.length = self._place.read + 1

    def end(self, text: str) -> tuple[str, bool]:
        """The text held back at the end of the answer, behind it the last ``text``, and whether it is the thought's."""
        if self._place.phase is Phase.THINKING:
            whole = self._held + "".join(self._parts) + text
            return (whole if self._said else whole.lstrip()).rstrip(), True
        if self._place.phase is Phase.OPENING:
            self.length = 0
        return self._answer(text), False

    def thought_of(self, first: int, count: int) -> int:
        """How many of ``count`` tokens from the index ``first`` on, those in front, are the thought's."""
        return min(max(self.length - first, 0), count)

    def _answer(self, text: str) -> str:
        text, self._held = self._held + text, ""
        if self._opened and self._trims:
            text = text.lstrip()
            self._trims = not text
        return text

    def _think(self, text: str) -> str:
        """The part of the thought that is certainly not of its end."""
        self._parts.append(text)
        sure = len(self._parts) - self._tracker.pending(self._place)
        self._held += "".join(self._parts[:sure])
        del self._parts[:sure]
        if not self._said:
            self._held = self._held.lstrip()
        cut = len(self._held.rstrip()) if not (end := self._tracker.thought.end.text) else _sure(self._held, end)
        told, self._held = self._held[:cut], self._held[cut:]
        self._said = self._said or bool(told)
        return told

    def _close(self, text: str) -> str:
        end = self._tracker.thought.end
        whole, self._held, self._parts = self._held, "", []
        if end.text:
            whole, _, self._held = (whole + text).partition(end.text)
        return (whole if self._said else whole.lstrip()).rstrip()


def _behind(mark: Mark, text: str) -> str:
    return text.partition(mark.text)[2] if mark.text else ""


def _sure(text: str, mark: str) -> int:
    """Length of ``text`` without blanks at its end, and without what may be the mark's beginning."""
    places = range(max(0, len(text) - len(mark) + 1), len(text))
    return len(text[: next((at for at in places if mark.startswith(text[at:])), len(text))].rstrip())
