"""Separates the text of an answer from its calls, token by token."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

import msgspec
from outrider.gateway.tool_calls.arguments import ArgumentsScanner
from outrider.gateway.tool_calls.bare_calls import BareCalls
from outrider.wire.calls import CallStyle
from outrider.wire.frames import WITHHELD, Finish, Frame


class AnswerPiece(msgspec.Struct, frozen=True):
    """The next piece of an answer: ``text`` of its content, or of the arguments of call number ``place``.

    A call's first piece holds its ``name``.
    """

    text: str
    place: int | None = None
    name: str | None = None


class AnswerReader:
    """Reads one answer, token by token: its pieces do not depend on how frames divide the tokens.

    Text that may be the beginning of a call is held back, and so are blanks, which are dropped before a call. If
    ``bare``, an answer of nothing but calls without the format's marks is read as calls, too. Such calls are returned
    at the end of the answer: any text behind them would make the whole answer text.
    """

    def __init__(self, style: CallStyle, names: Sequence[str], *, bare: bool = False) -> None:
        form = self._form = style.format
        name_ends = {json.dumps(name) + form.middle: name for name in names}
        self._heads = {form.first + end: name for end, name in name_ends.items()}
        self._later = {form.tail + form.later + end: name for end, name in name_ends.items()}
        self._silent = {mark.token: mark.text for mark in style.marks if mark.silent}
        self._held, self._talked, self._calls = "", False, 0
        self._arguments: ArgumentsScanner | None = None
        self._bare = BareCalls(names) if bare else None

    @property
    def called(self) -> bool:
        """Whether a call has begun."""
        return self._calls > 0

    @property
    def whole(self) -> bool:
        """Whether there are calls, and all have complete arguments."""
        return self.called and self._arguments is not None and self._arguments.whole

    def take(self, frame: Frame, *, last: bool = False) -> list[AnswerPiece]:
        """The pieces that ``frame`` completes; the last frame also releases the text held back.

        ``last`` marks a frame without a finish that holds the last tokens of an answer that the model ended.
        """
        tokens = [*frame.tokens, WITHHELD][: len(frame.texts)]  # a filtered answer may end in a text without a token
        pairs = zip(tokens, frame.texts, strict=True)
        pieces = [piece for token, text in pairs for piece in self._take_token(token, text)]
        if last or frame.finish == Finish.STOP:
            pieces += self._take_bare()
        if frame.finish is not None and not self.called and self._held:
            pieces.append(AnswerPiece(self._held))
            self._held = ""
        return _joined(pieces)

    def _take_bare(self) -> Iterator[AnswerPiece]:
        if self._bare is None or self._calls or not self._bare.whole:
            return
        for name, arguments in self._bare.calls:
            yield AnswerPiece(arguments, self._calls, name)
            self._calls += 1
        self._held, self._arguments = "", self._bare.arguments

    def _take_token(self, token: int, text: str) -> Iterator[AnswerPiece]:
        marked = text + self._silent.get(token, "")
        self._held += marked
        if self._bare is not None:
            self._bare.take(marked)
        while self._held:
            before = self._held
            yield from self._step()
            if self._held == before:
                return

    def _step(self) -> Iterator[AnswerPiece]:
        if self._arguments is None:
            yield from self._read_text()
        elif not self._arguments.whole:
            arguments, self._held = self._arguments.split(self._held)
            if arguments:
                yield AnswerPiece(arguments, self._calls - 1)
        elif self._form.later:
            yield from self._begin(self._later)

    def _read_text(self) -> Iterator[AnswerPiece]:
        """The text before the place where a call may begin, and the beginning of that call."""
        place = _beginning(self._held, self._form.first)
        if (place or self._talked) and not self._form.anywhere:
            place = len(self._held)
        if place == 0:
            yield from self._begin(self._heads)
            if self._arguments is not None or any(head.startswith(self._held) for head in self._heads):
                return
            place = 1  # this is no call
        if self._bare is not None and self._bare.possible:
            return
        text = self._held[:place].rstrip() if self._form.anywhere else self._held[:place]
        if text:
            self._talked = True
            self._held = self._held[len(text) :]
            yield AnswerPiece(text)
        elif self._held[place:].startswith(self._form.first):
            self._held = self._held[place:]

    def _begin(self, heads: dict[str, str]) -> Iterator[AnswerPiece]:
        for head, name in heads.items():
            if self._held.startswith(head):
                self._held = self._held[len(head) :]
                self._arguments, self._calls = ArgumentsScanner(), self._calls + 1
                yield AnswerPiece("", self._calls - 1, name)
                return


def _beginning(text: str, head: str) -> int:
    """The index in ``text`` where ``head`` begins, or may begin once more text follows; else the length of ``text``."""
    index = text.find(head)
    if index >= 0:
        return index
    partial = range(max(0, len(text) - len(head) + 1), len(text))
    return next((place for place in partial if head.startswith(text[place:])), len(text))


def _joined(pieces: list[AnswerPiece]) -> list[AnswerPiece]:
    """``pieces`` with adjacent pieces of one place joined."""
    joined: list[AnswerPiece] = []
    for piece in pieces:
        if joined and piece.name is None and joined[-1].place == piece.place:
            joined[-1] = msgspec.structs.replace(joined[-1], text=joined[-1].text + piece.text)
        else:
            joined.append(piece)
    return joined
