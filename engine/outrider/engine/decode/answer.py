"""A request's answer as it grows: text from tokens, stop conditions, outputs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from outrider.engine.logits.likelihood import Score
from outrider.engine.requests.output import Alternative, Draft, Finish, Likelihood, Output, Usage
from outrider.engine.requests.sequence import Request
from outrider.engine.speculation import MergedTree
from outrider.engine.text import IncrementalDecoder, StopMatcher, Tokenizer
from outrider.engine.thoughts.reader import ThoughtReader

_MOST_ECHOED = 256
"""Most tokens of a prompt in one output: a long prompt with log-probabilities may exceed the broker's message size."""


class Answers:
    """Creates answers with one model's tokenizer."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    def open(self, request: Request) -> Answer:
        """A new, empty answer."""
        return Answer(request, self._tokenizer)


class Answer:
    """Text and outputs of one request. Holds back text that may become a stop string, and parts of a character."""

    def __init__(self, request: Request, tokenizer: Tokenizer) -> None:
        self._request, self._tokenizer = request, tokenizer
        parameters = request.parameters
        self._thoughts: ThoughtReader | None = None
        if request.thinking is not None:
            self._thoughts = ThoughtReader(request.thinking, request.prompt, trims=request.grammar is None)
        self._keeps_special = not parameters.skip_special_tokens
        self._decoder = self._new_decoder()
        self._prompt_decoder = IncrementalDecoder(tokenizer, self._keeps_special)
        self._matcher = StopMatcher(parameters.stop, keeps=parameters.include_stop_str_in_output)
        self._count = 0
        self._stopped = False

    def replay(self, tokens: Sequence[int]) -> Finish | None:
        """Takes in tokens that were published before; the finish reason if they end the answer."""
        texts, finish = self.take(tokens)
        self._count += len(texts)
        if finish is None and tokens and self._count >= self._request.max_tokens:
            return Finish.LENGTH
        return finish

    def take(self, tokens: Sequence[int]) -> tuple[list[str], Finish | None]:
        """The text that each token makes final, up to the token that ends the answer, and the finish reason if any.

        Stop strings count only behind the first ``min_tokens`` tokens, and not in thoughts.
        """
        texts: list[str] = []
        request, parameters = self._request, self._request.parameters
        for token in tokens[: request.max_tokens - self._count]:
            ends = token in request.stop_ids
            if ends and self._drops_stop():
                return [*texts, ""], Finish.STOP
            text, thought = self._decoder.push(token), False
            if self._thoughts is not None:
                text, thought = self._read(self._thoughts, token, text)
            if parameters.stop and not thought and self._count + len(texts) >= parameters.min_tokens:
                text, self._stopped = self._matcher.push(text)
            texts.append(text)
            if self._stopped or ends:
                return texts, Finish.STOP
        return texts, None

    def _drops_stop(self) -> bool:
        """Whether a stop token here has no text."""
        if self._thoughts is not None:
            self._thoughts.stop()
        thinking = self._thoughts is not None and self._thoughts.thinking
        return thinking or not self._request.parameters.include_stop_str_in_output

    def _new_decoder(self) -> IncrementalDecoder:
        """A decoder of what follows; special tokens have no text in thoughts, of which they are the marks."""
        answering = self._thoughts is None or self._thoughts.answering
        return IncrementalDecoder(self._tokenizer, self._keeps_special and answering)

    def _read(self, thoughts: ThoughtReader, token: int, text: str) -> tuple[str, bool]:
        """As `ThoughtReader.take`; half a character in front of an end mark without text is the thought's."""
        thinking, answering = thoughts.thinking, thoughts.answering
        text, thought = thoughts.take(token, text)
        if (thinking and not thoughts.thinking) or (self._keeps_special and thoughts.answering and not answering):
            text += self._decoder.flush()
            self._decoder = self._new_decoder()
        return text, thought

    def echo(self, start: int, end: int, scores: Sequence[Score], first: int) -> Iterator[Output]:
        """Outputs of the prompt's tokens ``start`` to ``end``; ``scores`` belong to the tokens from ``first`` on."""
        prompt = self._request.prompt
        for begin in range(start, end, _MOST_ECHOED):
            places = range(begin, min(begin + _MOST_ECHOED, end))
            tokens = [prompt[place] for place in places]
            texts = [self._prompt_decoder.push(token) for token in tokens]
            if places[-1] == len(prompt) - 1:
                texts[-1] += self._prompt_decoder.flush()
            likelihoods = None
            if self._request.parameters.logprobs is not None:
                place_scores = [scores[place - first] if place else None for place in places]
                likelihoods = self._likelihoods(tokens, place_scores)
            yield Output(
                self._request.id, begin - len(prompt), tokens, texts, [""] * len(tokens), likelihoods=likelihoods
            )

    def output(
        self,
        tokens: list[int],
        texts: list[str],
        guessed_by: list[str],
        scores: Sequence[Score] | None = None,
        drafts: list[Draft] | None = None,
    ) -> Output:
        """The output of ``tokens``, which follow the tokens of the previous output."""
        first, self._count = self._count, self._count + len(tokens)
        output = Output(self._request.id, first, tokens, texts, guessed_by)
        output.drafts = drafts
        if scores is not None:
            output.likelihoods = self._likelihoods(tokens, scores)
        if self._thoughts is not None:
            output.thought = self._thoughts.thought_of(first, len(tokens))
        return output

    def drafts(self, guesses: MergedTree, rows: Sequence[int], tokens: int) -> list[Draft]:
        """The guesses that a step verified, for the next output of a request with ``return_drafts``.

        The step accepted the guesses on ``rows`` (`AcceptedPath`); the next output holds ``tokens`` of its tokens.
        """
        data = [self._data(token) for token in guesses.tokens]
        path = [row - 1 for row in rows[1 : tokens + 1]]
        return [Draft(self._count, guesses.tokens, data, guesses.parents, guesses.drafters, path)]

    def _likelihoods(self, tokens: Sequence[int], scores: Sequence[Score | None]) -> list[Likelihood]:
        return [
            Likelihood(None, self._data(token), [])
            if score is None
            else Likelihood(
                score.logprob,
                self._data(token),
                [Alternative(id_, at, self._data(id_)) for id_, at in score.top],
                score.rank,
            )
            for token, score in zip(tokens, scores, strict=True)
        ]

    def _data(self, token: int) -> bytes:
        table = self._tokenizer.single_token_bytes
        return table[token] if token < len(table) else b""

    def last(self, output: Output, finish: Finish, usage: Usage | None, error: str | None) -> Output:
        """``output`` as the answer's last: with the finish reason, the usage and the text still held back."""
        texts = list(output.texts)
        if texts and not self._stopped:
            texts[-1] += self._rest()
        stop = self._matcher.found if finish is Finish.STOP else None
        last = replace(output, texts=texts, finish=finish, usage=usage, error=error, stop=stop)
        if self._thoughts is not None:
            last.thought = self._thoughts.thought_of(output.first_index, len(output.tokens))
            last.usage = usage and replace(usage, reasoning_tokens=self._thoughts.tokens)
        return last

    def _rest(self) -> str:
        text = self._decoder.flush()
        if self._thoughts is not None:
            text, thought = self._thoughts.end(text)
            if thought:
                return text
        text, stopped = self._matcher.push(text)
        return text if stopped else text + self._matcher.flush()
