"""A request's answer as it grows: text from tokens, stop conditions, frames."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from outrider.models.text import IncrementalDecoder, StopMatcher, Tokenizer
from outrider.verifier.sequence import Request
from outrider.wire.frames import Finish, Frame, Usage


class Answers:
    """Opens answers for one model's tokenizer."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    def open(self, request: Request) -> Answer:
        """A new answer with nothing in it."""
        return Answer(request, IncrementalDecoder(self._tokenizer), StopMatcher(request.stop))


class Answer:
    """Text and frames of one request. Text that may yet become a stop string, or half a character, is held back."""

    def __init__(self, request: Request, decoder: IncrementalDecoder, matcher: StopMatcher) -> None:
        self._request, self._decoder, self._matcher = request, decoder, matcher
        self._count = 0
        self._stopped = False

    def replay(self, tokens: Sequence[int]) -> Finish | None:
        """Takes in tokens that were published before; how they ended the answer, if they did."""
        texts, finish = self.take(tokens)
        self._count += len(texts)
        if finish is None and self._count >= self._request.max_tokens:
            return Finish.LENGTH
        return finish

    def take(self, tokens: Sequence[int]) -> tuple[list[str], Finish | None]:
        """Text that each token made final, up to and with the token that ends the answer, and whether one did."""
        texts: list[str] = []
        for token in tokens[: self._request.max_tokens - self._count]:
            if token in self._request.stop_ids:
                return [*texts, ""], Finish.STOP
            text, self._stopped = self._matcher.push(self._decoder.push(token))
            texts.append(text)
            if self._stopped:
                return texts, Finish.STOP
        return texts, None

    def frame(self, tokens: list[int], texts: list[str], guessed_by: list[str]) -> Frame:
        """The frame of ``tokens``, which follow those of the frame before."""
        first, self._count = self._count, self._count + len(tokens)
        return Frame(self._request.id, first, tokens, texts, guessed_by)

    def last(self, frame: Frame, finish: Finish, usage: Usage, error: str | None) -> Frame:
        """``frame`` as the answer's last: with its end, its cost and the text that was held back for nothing."""
        texts = list(frame.texts)
        if texts and not self._stopped:
            texts[-1] += self._rest()
        return msgspec.structs.replace(frame, texts=texts, finish=finish, usage=usage, error=error)

    def _rest(self) -> str:
        text, stopped = self._matcher.push(self._decoder.flush())
        return text if stopped else text + self._matcher.flush()
