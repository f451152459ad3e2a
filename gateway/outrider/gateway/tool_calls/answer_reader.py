"""Separates the text of an answer from its calls, token by token."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence

import msgspec
from outrider.gateway.schemas.parameters import ParameterTypes
from outrider.gateway.tool_calls.arguments import Arguments, arguments_of
from outrider.gateway.tool_calls.bare_calls import BareCalls
from outrider.gateway.tool_calls.matching import beginning, fits
from outrider.wire.call_formats.call_format import NAME
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

    Text that may be the beginning of a call is held back, and so are blanks, which are dropped before a call. What
    begins like a call of ``names`` and is none is text. If ``bare``, an answer of nothing but calls without the
    format's marks is read as calls, too. Such calls are returned at the end of the answer: any text behind them would
    make the whole answer text. ``types`` are those of each function's parameters. The beginning of a first call at the
    end of an answer is text, that of a further one is left out.
    """

    def __init__(
        self, style: CallStyle, names: Sequence[str], types: Sequence[ParameterTypes] = (), *, bare: bool = False
    ) -> None:
        form = self._form = style.format
        self._heads, self._later = _spelled(form.head, names), _spelled(form.later, names)
        self._turns = form.turns + form.between_turns
        self._openings = {head.partition(NAME)[0] for head in form.head} | set(self._turns)
        self._types = dict(zip(names, types, strict=False))
        self._silent = {mark.token: mark.text for mark in style.marks if mark.silent}
        self._held, self._talked, self._calls = "", False, 0
        self._next = self._read_text
        self._arguments: Arguments | None = None
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
        if frame.finish is not None:
            if self._held and not self.called:
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
        before = None
        while self._held and before != (self._next, self._held):
            before = self._next, self._held
            yield from self._next()

    def _read_text(self) -> Iterator[AnswerPiece]:
        """The text before the place where a call may begin, and the beginning of that call."""
        anywhere = self._form.anywhere
        place = min(beginning(self._held, opening) for opening in self._openings)
        if (place or self._talked or self._calls) and not anywhere:
            place = len(self._held)
        text = self._held[:place].rstrip() if anywhere else self._held[:place]
        if not text and place < len(self._held):
            before, self._held = self._held[:place], self._held[place:]
            begun = yield from self._begin(self._heads)
            if begun:
                return
            turn = next((turn for turn in self._turns if self._held.startswith(turn)), "")
            self._held = before + self._held[len(turn) :]
            if turn or begun is None or any(turn.startswith(self._held[place:]) for turn in self._turns):
                return
            text = self._held[: place + 1]  # this is no call
        if text and not (self._bare is not None and self._bare.possible):
            self._talked = True
            self._held = self._held[len(text) :]
            yield AnswerPiece(text)

    def _read_arguments(self) -> Iterator[AnswerPiece]:
        assert self._arguments is not None
        arguments, self._held = self._arguments.split(self._held)
        if self._arguments.whole:
            self._next = self._read_tail
        if arguments:
            yield AnswerPiece(arguments, self._calls - 1)

    def _read_tail(self) -> Iterator[AnswerPiece]:
        yield from ()
        self._pass(self._form.tail, self._read_further)

    def _read_further(self) -> Iterator[AnswerPiece]:
        """The beginning of a further call, or the end of the calls."""
        if (yield from self._begin(self._later)) is False:
            self._pass((self._form.end,) if self._form.end else (), self._read_text)

    def _pass(self, texts: Sequence[str], then: Callable[[], Iterator[AnswerPiece]]) -> None:
        """Drops one of ``texts``, if there are any, and goes on with what is ``then``; with text if there is none."""
        found = [length for text in texts if (length := fits(text, self._held)) is not None]
        if not texts or any(found):
            self._held, self._next = self._held[max(found, default=0) :], then
        elif not found:
            self._next = self._read_text

    def _begin(self, heads: dict[str, str]) -> Generator[AnswerPiece, None, bool | None]:
        """Begins a call with the longest of ``heads``; returns whether it did, None if more text decides."""
        found = {head: length for head in heads if (length := fits(head, self._held)) is not None}
        if not all(found.values()):
            return None
        if not found:
            return False
        head = max(found, key=len)
        self._held = self._held[found[head] :]
        self._arguments = arguments_of(self._form, self._types.get(heads[head], {}))
        self._next, self._calls = self._read_arguments, self._calls + 1
        yield AnswerPiece("", self._calls - 1, heads[head])
        return True


def _spelled(heads: Sequence[str], names: Sequence[str]) -> dict[str, str]:
    """The heads of calls of ``names``, each with its name."""
    return {head.replace(NAME, name): name for head in heads for name in names}


def _joined(pieces: list[AnswerPiece]) -> list[AnswerPiece]:
    """``pieces`` with adjacent pieces of one place joined."""
    joined: list[AnswerPiece] = []
    for piece in pieces:
        if joined and piece.name is None and joined[-1].place == piece.place:
            joined[-1] = msgspec.structs.replace(joined[-1], text=joined[-1].text + piece.text)
        else:
            joined.append(piece)
    return joined
