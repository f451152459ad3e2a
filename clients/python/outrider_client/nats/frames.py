"""Orders frames of verifiers and converts them to the types of this package."""

from __future__ import annotations

from bisect import bisect_left
from typing import Any

import msgspec

from outrider_client.errors import ErrorBody, GatewayError, error_of_event
from outrider_client.types import (
    Answer,
    Choice,
    Chunk,
    CompletionDetails,
    Delta,
    Detail,
    PromptDetails,
    Usage,
    draft,
    logprob_entry,
)

_LEAST = -(1 << 31)
_TYPES = {
    "error": "server_error",
    "refused": "invalid_request_error",
    "cancelled": "cancelled_error",
    "timeout": "timeout_error",
}


class FrameUsage(msgspec.Struct, array_like=True, frozen=True):
    """The cost of a request; ``emitted`` tokens of earlier verifiers are not counted in the other fields.

    ``verified[i]`` is the number of steps that verified guesses and accepted ``i`` of them. ``predicted`` has the
    accepted and the rejected guesses of the request's prediction; None without one.
    """

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0
    accepted_tokens: int = 0
    rejected_tokens: int = 0
    steps: int = 0
    lossy: bool = False
    emitted: int = 0
    verified: list[int] = []
    predicted: tuple[int, int] | None = None
    reasoning_tokens: int = 0


class Alternative(msgspec.Struct, array_like=True, frozen=True):
    """One of the likeliest tokens of a position."""

    token: int
    logprob: float
    data: bytes


class Likelihood(msgspec.Struct, array_like=True, frozen=True):
    """The target's log-probability of a token, with the likeliest tokens; ``rank`` 1 is the likeliest."""

    logprob: float | None
    data: bytes
    top: list[Alternative]
    rank: int = 0


class Tree(msgspec.Struct, array_like=True, frozen=True):
    """The guesses that a step verified; ``data`` holds the bytes of each guess."""

    first_index: int
    tokens: list[int]
    data: list[bytes]
    parents: list[int]
    guessed_by: list[str]
    accepted: list[int]


class Frame(msgspec.Struct, array_like=True, frozen=True):
    """Tokens from ``first_index`` on; the last frame has ``finish`` and ``usage``.

    The first ``thought`` of the tokens, and of the texts, are of a thought before the answer. ``stop`` is the stop
    string that ended the answer. ``embedding`` is the prompt's: little-endian float32.
    """

    request: str
    first_index: int
    tokens: list[int]
    texts: list[str]
    guessed_by: list[str]
    finish: str | None = None
    usage: FrameUsage | None = None
    error: str | None = None
    likelihoods: list[Likelihood] | None = None
    verifier: str | None = None
    drafts: list[Tree] | None = None
    thought: int = 0
    stop: str | None = None
    embedding: bytes | None = None


read_frame = msgspec.msgpack.Decoder(Frame).decode


class Gap(Exception):
    """Tokens are missing, or the verifier gave the request up: the stream has to be resumed."""


class AcceptedRequest(msgspec.Struct, frozen=True):
    """A gateway's answer to an accepted request."""

    request_id: str
    subjects: list[str]
    model: str
    created: int
    seed: int


class Choices:
    """The choices of one request, up to the last frame read.

    With an ``echoed`` prompt, choices begin at their first frames.
    """

    def __init__(self, request_id: str, start: list[int], *, echoed: bool) -> None:
        self._request, self.next = request_id, list(start)
        self._open = [echoed] * len(start)
        self.ended = [False] * len(start)
        self._guessed_by: list[list[str]] = [[] for _ in start]
        self._starts: list[list[int]] = [[] for _ in start]
        self.accepted: AcceptedRequest | None = None

    @property
    def done(self) -> bool:
        """Whether all choices have ended."""
        return all(self.ended)

    @property
    def resume_index(self) -> list[int]:
        """Index of the next token of each choice; the least index before its first frame."""
        return [_LEAST if is_open else index for is_open, index in zip(self._open, self.next, strict=True)]

    def take(self, data: bytes) -> Chunk | None:
        """The chunk of a frame; None for a frame without news. Raises `Gap`, or the frame's error."""
        frame = read_frame(data)
        choice = self._choice_of(frame.request)
        if self.ended[choice] or (frame.finish == "cancelled" and frame.error is None):
            return None
        if frame.finish in _TYPES:
            self.ended = [True] * len(self.ended)
            raise self._error(frame)
        if frame.finish is None and frame.error is not None:
            raise Gap(frame.error)
        if self._open[choice] and frame.tokens:
            self.next[choice] = min(self.next[choice], frame.first_index)
        self._open[choice] = False
        if frame.first_index > self.next[choice]:
            raise Gap("a frame was lost")
        return self._chunk(_from(frame, self.next[choice]), choice)

    def _choice_of(self, name: str) -> int:
        """The choice of a frame: names end with the choice's number; the first choice has the request's name."""
        return 0 if name == self._request else int(name.removeprefix(f"{self._request}-"))

    def _chunk(self, frame: Frame, choice: int) -> Chunk | None:
        if not frame.tokens and frame.finish is None:
            return None
        if frame.first_index >= 0:
            self._starts[choice].append(frame.first_index)
        self._guessed_by[choice] += frame.guessed_by[max(0, -frame.first_index) :]
        self.next[choice] = frame.first_index + len(frame.tokens)
        self.ended[choice] = frame.finish is not None
        accepted = self.accepted
        return Answer(
            id=self._request,
            created=accepted.created if accepted else 0,
            model=accepted.model if accepted else "",
            choices=[_choice(frame, choice)],
            usage=None if frame.usage is None else self._usage(frame.usage, choice),
            outrider=self._detail(frame, choice),
        )

    def _detail(self, frame: Frame, choice: int) -> Detail:
        cost = frame.usage
        return Detail(
            first_index=frame.first_index,
            tokens=frame.tokens,
            texts=frame.texts,
            guessed_by=frame.guessed_by,
            drafts=[draft(tree) for tree in frame.drafts or []],
            seed=self.accepted.seed if cost is not None and self.accepted is not None and choice == 0 else None,
            steps=None if cost is None else cost.steps + bisect_left(self._starts[choice], cost.emitted),
            verifier=frame.verifier,
            lossy=cost is not None and cost.lossy,
        )

    def _usage(self, cost: FrameUsage, choice: int) -> Usage:
        generated = max(0, self.next[choice])
        before = self._guessed_by[choice][: cost.emitted]
        accepted, rejected = cost.accepted_tokens + sum(map(bool, before)), cost.rejected_tokens
        if cost.predicted is not None:
            accepted, rejected = cost.predicted[0] + before.count("prediction"), cost.predicted[1]
        return Usage(
            cost.prompt_tokens,
            generated,
            cost.prompt_tokens + generated,
            PromptDetails(cost.cached_tokens),
            CompletionDetails(accepted, rejected, cost.reasoning_tokens),
        )

    def _error(self, frame: Frame) -> GatewayError:
        code = "deadline_exceeded" if frame.finish == "timeout" else None
        body = ErrorBody(frame.error or "the request failed", _TYPES[str(frame.finish)], code=code)
        return error_of_event(body, self._request)


def _from(frame: Frame, index: int) -> Frame:
    """The part of ``frame`` from ``index`` on."""
    skipped = min(index - frame.first_index, len(frame.tokens))
    if skipped <= 0:
        return frame
    return msgspec.structs.replace(
        frame,
        first_index=frame.first_index + skipped,
        tokens=frame.tokens[skipped:],
        texts=frame.texts[skipped:],
        guessed_by=frame.guessed_by[skipped:],
        likelihoods=None if frame.likelihoods is None else frame.likelihoods[skipped:],
        drafts=[tree for tree in frame.drafts or [] if tree.first_index >= index],
        thought=max(frame.thought - skipped, 0),
    )


def _choice(frame: Frame, choice: int) -> Choice:
    thought, text = ("".join(texts) for texts in (frame.texts[: frame.thought], frame.texts[frame.thought :]))
    delta = Delta(reasoning_content=thought) if thought else None
    return Choice(choice, frame.finish, text, delta=delta, logprobs=_logprobs(frame))


def _logprobs(frame: Frame) -> dict[str, Any] | None:
    if frame.likelihoods is None:
        return None
    return {"content": [logprob_entry(entry, entry.logprob) for entry in frame.likelihoods]}
