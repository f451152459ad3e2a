"""The answers of ``best_of`` that a client gets."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from outrider.wire.frames import Frame


def likeliest(frames: Sequence[Frame], answers: int, kept: int) -> list[int]:
    """Places of the ``kept`` answers to each prompt that have the highest log-probability a token, highest first.

    A prompt has ``answers`` neighbours among ``frames``, each a whole answer; of equals the earlier one comes first.
    """
    ranked = [
        sorted(range(start, start + answers), key=lambda place: -_per_token(frames[place]))
        for start in range(0, len(frames), answers)
    ]
    return [place for places in ranked for place in places[:kept]]


def _per_token(frame: Frame) -> float:
    """The mean log-probability of the answer's tokens, without those of an echoed prompt."""
    own = [each.logprob or 0.0 for each in (frame.likelihoods or ())[max(-frame.first_index, 0) :]]
    return sum(own) / len(own) if own else -inf
