"""An answer's text and its calls, told apart while they come."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

import msgspec
from outrider.gateway.tool_calls.arguments import Arguments
from outrider.gateway.tool_calls.bare import BareCalls
from outrider.wire.calls import CallStyle
from outrider.wire.frames import Finish, Frame


class Piece(msgspec.Struct, frozen=True):
    """What comes next of an answer: ``text`` of its content, or of the arguments of the call at ``place``.

    ``name`` is set where that call begins.
    """

    text: str
    place: int | None = None
    name: str | None = None


class Reading:
    """Reads one answer, token by token: what it tells does not depend on how tokens come together in frames.

    Text is held back while it may yet be the beginning of a call, and so are blanks, which nobody says before one.
    Where ``bare``, an answer that is calls without the format's marks is read as calls, too. They are told at its end:
    one word behind them would make all of it text.
    """

    def __init__(self, style: CallStyle, names: Sequence[str], *, bare: bool = False) -> None:
        form = self._form = style.format
        named = {json.dumps(name) + form.middle: name for name in names}
        self._heads = {form.first + end: name for end, name in named.items()}
        self._later = {form.tail + form.later + end: name for end, name in named.items()}
        self._silent = {mark.token: mark.text for mark in style.marks if mark.silent}
        self._held, self._said, self._calls = "", False, 0
        self._arguments: Arguments | None = None
        self._bare = BareCalls(names) if bare else None

    @property
    def called(self) -> bool:
        """Whether a call has begun."""
        return self._calls > 0

    @property
    def whole(self) -> bool:
        """Whether there are calls, and the arguments of all."""
        return self.called and self._arguments is not None and self._arguments.whole

    def take(self, frame: Frame, *, last: bool = False) -> list[Piece]:
        """What the frame's tokens tell, and at its end what was held back.

        ``last`` says of a frame without an end that its tokens are the last of an answer that the model ended.
        """
        said = zip(frame.tokens, frame.texts, strict=True)
        pieces = [piece for token, text in said for piece in self._on(token, text)]
        if last or frame.finish == Finish.STOP:
            pieces += self._told_bare()
        if frame.finish is not None and not self.called and self._held:
            pieces.append(Piece(self._held))
            self._held = ""
        return _joined(pieces)

    def _told_bare(self) -> Iterator[Piece]:
        if self._bare is None or self._calls or not self._bare.whole:
            return
        for name, arguments in self._bare.calls:
            yield Piece(arguments, self._calls, name)
            self._calls += 1
        self._held, self._arguments = "", self._bare.arguments

    def _on(self, token: int, text: str) -> Iterator[Piece]:
        said = text + self._silent.get(token, "")
        self._held += said
        if self._bare is not None:
            self._bare.take(said)
        while self._held:
            before = self._held
            yield from self._step()
            if self._held == before:
                return

    def _step(self) -> Iterator[Piece]:
        if self._arguments is None:
            yield from self._talk()
        elif not self._arguments.whole:
            told, self._held = self._arguments.split(self._held)
            if told:
                yield Piece(told, self._calls - 1)
        elif self._form.later:
            yield from self._begin(self._later)

    def _talk(self) -> Iterator[Piece]:
        """Text up to where a call may begin, and its beginning."""
        place = _beginning(self._held, self._form.first)
        if (place or self._said) and not self._form.anywhere:
            place = len(self._held)
        if place == 0:
            yield from self._begin(self._heads)
            if self._arguments is not None or any(head.startswith(self._held) for head in self._heads):
                return
            place = 1  # it has turned out to be no call
        if self._bare is not None and self._bare.possible:
            return
        told = self._held[:place].rstrip() if self._form.anywhere else self._held[:place]
        if told:
            self._said = True
            self._held = self._held[len(told) :]
            yield Piece(told)
        elif self._held[place:].startswith(self._form.first):
            self._held = self._held[place:]

    def _begin(self, heads: dict[str, str]) -> Iterator[Piece]:
        for head, name in heads.items():
            if self._held.startswith(head):
                self._held = self._held[len(head) :]
                self._arguments, self._calls = Arguments(), self._calls + 1
                yield Piece("", self._calls - 1, name)
                return


def _beginning(text: str, head: str) -> int:
    """Where ``head`` begins in ``text``, or may as soon as more text follows; its end where that is nowhere."""
    found = text.find(head)
    if found >= 0:
        return found
    shorter = range(max(0, len(text) - len(head) + 1), len(text))
    return next((place for place in shorter if head.startswith(text[place:])), len(text))


def _joined(pieces: list[Piece]) -> list[Piece]:
    """Neighbours of one place as one."""
    made: list[Piece] = []
    for piece in pieces:
        if made and piece.name is None and made[-1].place == piece.place:
            made[-1] = msgspec.structs.replace(made[-1], text=made[-1].text + piece.text)
        else:
            made.append(piece)
    return made
