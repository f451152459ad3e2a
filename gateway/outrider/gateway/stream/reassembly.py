"""Puts frames from several sources in order, without gaps and without repeats."""

from __future__ import annotations

from bisect import bisect_left

import msgspec
from outrider.wire.frames import PREDICTION, Draft, Frame


class Reassembly:
    """The tokens of one answer so far. Sources may repeat, overlap and lose frames.

    The first ``prompt`` tokens are those of an echoed prompt, at indices below 0; generated tokens start at index 0.

    Attributes:
        next_index: index of the next token.
    """

    def __init__(self, prompt: int = 0) -> None:
        self._prompt, self.next_index = prompt, -prompt
        self.tokens: list[int] = []
        self._guessed_by: list[str] = []
        self._starts: list[int] = []

    @property
    def generated(self) -> list[int]:
        """The generated tokens."""
        return self.tokens[self._prompt :]

    def fits(self, frame: Frame) -> bool:
        """Whether no token is missing before ``frame``."""
        return frame.first_index <= self.next_index

    def reaches(self, frame: Frame) -> bool:
        """Whether ``frame`` ends at the next token or later: its source is not behind."""
        return frame.first_index + len(frame.tokens) >= self.next_index

    def take(self, frame: Frame) -> Frame | None:
        """Appends a fitting ``frame``; returns its new part, or None if it has none."""
        repeated = self.next_index - frame.first_index
        if repeated >= len(frame.tokens) and frame.finish is None:
            return None
        fresh = frame if repeated == 0 else split(frame, repeated)[1]
        self.tokens += fresh.tokens
        self.next_index += len(fresh.tokens)
        self._guessed_by += fresh.guessed_by[max(0, -fresh.first_index) :]
        if fresh.first_index >= 0:
            self._starts.append(fresh.first_index)
        return fresh

    def complete(self, frame: Frame) -> Frame:
        """``frame``, its usage extended by the tokens and steps of earlier verifiers of the same answer."""
        usage = frame.usage
        if usage is None:
            return frame
        before, predicted = self._guessed_by[: usage.emitted], usage.predicted
        usage = msgspec.structs.replace(
            usage,
            completion_tokens=self.next_index,
            accepted_tokens=usage.accepted_tokens + sum(map(bool, before)),
            predicted=None if predicted is None else (predicted[0] + before.count(PREDICTION), predicted[1]),
            steps=usage.steps + bisect_left(self._starts, usage.emitted),
            emitted=0,
        )
        return msgspec.structs.replace(frame, usage=usage)


def join(frames: list[Frame]) -> Frame:
    """Consecutive frames as one."""
    if len(frames) == 1:
        return frames[0]
    return msgspec.structs.replace(
        frames[-1],
        first_index=frames[0].first_index,
        tokens=[token for frame in frames for token in frame.tokens],
        texts=[text for frame in frames for text in frame.texts],
        guessed_by=[name for frame in frames for name in frame.guessed_by],
        likelihoods=[entry for frame in frames for entry in frame.likelihoods or []] or None,
        drafts=[draft for frame in frames for draft in frame.drafts or []] or None,
        thought=sum(frame.thought for frame in frames),
    )


def split(frame: Frame, count: int) -> tuple[Frame, Frame]:
    """The first ``count`` tokens of ``frame``, and the rest with its end; a draft belongs to the part it begins in."""
    place, drafts = frame.first_index + count, frame.drafts
    before, after = (None, None) if drafts is None else _split_drafts(drafts, place)
    head = msgspec.structs.replace(
        _part(frame, slice(count)), finish=None, usage=None, error=None, verifier=None, drafts=before, stop=None
    )
    tail = msgspec.structs.replace(_part(frame, slice(count, None)), first_index=place, drafts=after)
    if frame.thought:
        head = msgspec.structs.replace(head, thought=min(frame.thought, count))
        tail = msgspec.structs.replace(tail, thought=max(frame.thought - count, 0))
    return head, tail


def _split_drafts(drafts: list[Draft], place: int) -> tuple[list[Draft], list[Draft]]:
    return [each for each in drafts if each.first_index < place], [each for each in drafts if each.first_index >= place]


def _part(frame: Frame, places: slice) -> Frame:
    return msgspec.structs.replace(
        frame,
        tokens=frame.tokens[places],
        texts=frame.texts[places],
        guessed_by=frame.guessed_by[places],
        likelihoods=None if frame.likelihoods is None else frame.likelihoods[places],
    )
