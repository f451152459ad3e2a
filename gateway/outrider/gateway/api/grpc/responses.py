"""Turns frames into the messages that clients read over gRPC."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from outrider.gateway.api.openai.answers import decode_shape, fingerprint
from outrider.gateway.api.schema.tools import read_calls
from outrider.gateway.request.flight import Flight
from outrider.gateway.stream.reassembly import join, split
from outrider.gateway.tool_calls.answer_reader import AnswerPiece, AnswerReader
from outrider.v1 import inference_pb2 as pb
from outrider.wire.frames import Draft, Frame, Likelihood, Usage

_UNSIGNED = (1 << 64) - 1


class ResponseWriter:
    """Writes the responses of a flight, each choice from its token index in ``start`` on.

    Earlier tokens are read too, since calls of functions may begin in them.
    """

    def __init__(self, flight: Flight, start: Sequence[int]) -> None:
        self._flight, self._start = flight, start
        shape = decode_shape(flight.record.shape)
        self._functions, self._return_tokens, self._ignored = shape.functions, shape.return_tokens, shape.ignored
        self._shows_thoughts = shape.thoughts != "hidden"
        style = flight.record.served.calls
        self._answer_readers = [
            AnswerReader(style, shape.functions, shape.types, bare=shape.bare) for _ in range(flight.record.choices)
        ]
        self._calls: list[list[AnswerPiece]] = [[] for _ in self._answer_readers]

    async def run(self) -> AsyncGenerator[pb.GenerateResponse, None]:
        """The responses; raises as `AnswerStream.frames`."""
        async with aclosing(self._flight.frames()) as batches:
            async for choice, frames in batches:
                for frame in frames:
                    if (response := self._response(frame, choice)) is not None:
                        yield response

    async def whole(self) -> pb.CompleteResponse:
        """The whole answer; raises as `AnswerStream.frames`."""
        frames_by_choice: list[list[Frame]] = [[] for _ in self._flight.streams]
        async with aclosing(self._flight.frames()) as batches:
            async for choice, frames in batches:
                frames_by_choice[choice] += frames
        joined = [join(frames) for frames in frames_by_choice]
        choices = [self._message(frame, choice) for choice, frame in enumerate(joined)]
        return pb.CompleteResponse(request_id=self._flight.key.request, choices=choices, usage=_sum(choices))

    def _response(self, frame: Frame, choice: int) -> pb.GenerateResponse | None:
        """The part of ``frame`` from the start index on; None if that part is empty."""
        read_before = min(self._start[choice] - frame.first_index, len(frame.tokens))
        if read_before > 0:
            head, frame = split(frame, read_before)
            self._read(head, choice)
        return self._message(frame, choice) if frame.tokens or frame.finish else None

    def _message(self, frame: Frame, choice: int) -> pb.GenerateResponse:
        message = pb.GenerateResponse(
            request_id=self._flight.key.request,
            choice=choice,
            first_index=frame.first_index,
            tokens=frame.tokens,
            text=self._read(frame, choice),
            logprobs=[_likelihood(entry) for entry in frame.likelihoods or []],
            drafts=[_draft(draft) for draft in frame.drafts or []],
        )
        if frame.thought and self._shows_thoughts:
            message.reasoning = "".join(frame.texts[: frame.thought])
        if self._return_tokens:
            message.texts.extend(frame.texts)
            message.guessed_by.extend(frame.guessed_by)
        if frame.finish is not None:
            self._end(message, frame, choice)
        return message

    def _end(self, message: pb.GenerateResponse, frame: Frame, choice: int) -> None:
        message.finish = str(frame.finish)
        message.usage.CopyFrom(_usage(frame.usage or Usage(0, 0)))
        message.detail.CopyFrom(self._detail(frame, choice))
        for call in read_calls(self._calls[choice], f"{self._flight.key.request}_{choice}"):
            name, arguments = str(call.function.name), call.function.arguments
            message.tool_calls.append(pb.FunctionCall(id=str(call.id), name=name, arguments=arguments))
        if self._answer_readers[choice].whole and message.finish == "stop":
            message.finish = "tool_calls"

    def _read(self, frame: Frame, choice: int) -> str:
        """The text of a frame outside thoughts and calls; pieces of calls are kept for the last message."""
        if frame.thought:
            frame = split(frame, frame.thought)[1]
        if not self._functions:
            return "".join(frame.texts)
        pieces = self._answer_readers[choice].take(frame)
        self._calls[choice] += [piece for piece in pieces if piece.place is not None]
        return "".join(piece.text for piece in pieces if piece.place is None)

    def _detail(self, frame: Frame, choice: int) -> pb.GenerationDetail:
        record, usage = self._flight.record, frame.usage or Usage(0, 0)
        return pb.GenerationDetail(
            model=record.served.name,
            fingerprint=fingerprint(record.served),
            created=record.created,
            seed=record.seeds[choice] & _UNSIGNED,
            steps=usage.steps,
            verifier=frame.verifier or "",
            lossy=usage.lossy,
            ignored=self._ignored,
        )


def _usage(usage: Usage) -> pb.Usage:
    accepted, rejected = usage.told_guesses
    return pb.Usage(
        prompt_tokens=usage.prompt_tokens,
        completion_tokens=usage.completion_tokens,
        cached_tokens=usage.cached_tokens,
        accepted_tokens=accepted,
        rejected_tokens=rejected,
        reasoning_tokens=usage.reasoning_tokens,
    )


def _sum(choices: Sequence[pb.GenerateResponse]) -> pb.Usage:
    """The usage of all choices: the prompt counts once."""
    total = pb.Usage()
    total.CopyFrom(choices[0].usage)
    for choice in choices[1:]:
        total.completion_tokens += choice.usage.completion_tokens
        total.accepted_tokens += choice.usage.accepted_tokens
        total.rejected_tokens += choice.usage.rejected_tokens
        total.reasoning_tokens += choice.usage.reasoning_tokens
    return total


def _likelihood(entry: Likelihood) -> pb.TokenLikelihood:
    top = [pb.LikelyToken(token=other.token, logprob=other.logprob, data=other.data) for other in entry.top]
    return pb.TokenLikelihood(logprob=entry.logprob, data=entry.data, top=top)


def _draft(draft: Draft) -> pb.Draft:
    return pb.Draft(
        first_index=draft.first_index,
        tokens=draft.tokens,
        data=draft.data,
        parents=draft.parents,
        guessed_by=draft.guessed_by,
        accepted=draft.accepted,
    )
