"""Log-probabilities of the prompt in vLLM's form, taken from the frames of an echoed prompt."""

from __future__ import annotations

import msgspec
from outrider.gateway.stream.reassembly import join
from outrider.wire.frames import Frame, Likelihood


class PromptLogprob(msgspec.Struct):
    """One token at a place of a prompt; ``rank`` 1 is the likeliest."""

    logprob: float
    rank: int
    decoded_token: str


PromptLogprobs = list[dict[str, PromptLogprob] | None]
"""For each token of the prompt, itself and the likeliest ones by id; None for the first, which has none before it."""


class Wanted(msgspec.Struct, frozen=True):
    """The likeliest tokens that a client wants of prompt and answer, and whether the answer ``echoes`` the prompt."""

    prompt: int | None
    answer: int | None
    echoes: bool = False

    @property
    def most(self) -> int | None:
        """The likeliest tokens that the target has to tell; None for no log-probabilities."""
        return max((each for each in (self.prompt, self.answer) if each is not None), default=None)

    def part(self, frames: list[Frame]) -> tuple[PromptLogprobs, Frame]:
        """The log-probabilities of the prompt, and the joined frame of the answer."""
        prompt = [frame for frame in frames if frame.first_index < 0]
        answer = join([frame for frame in frames if self.echoes or frame.first_index >= 0])
        told = answer.likelihoods if self.answer is not None else None
        cut = [msgspec.structs.replace(entry, top=entry.top[: self.answer]) for entry in told or []]
        return (
            [
                _entry(token, likelihood, self.prompt or 0)
                for frame in prompt
                for token, likelihood in zip(frame.tokens, frame.likelihoods or [], strict=True)
            ],
            msgspec.structs.replace(answer, likelihoods=None if told is None else cut),
        )


def _entry(token: int, likelihood: Likelihood, most: int) -> dict[str, PromptLogprob] | None:
    if likelihood.logprob is None:
        return None
    found = {str(token): PromptLogprob(likelihood.logprob, likelihood.rank, _text(likelihood.data))}
    for rank, other in enumerate(likelihood.top[:most], 1):
        found.setdefault(str(other.token), PromptLogprob(other.logprob, rank, _text(other.data)))
    return found


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")
