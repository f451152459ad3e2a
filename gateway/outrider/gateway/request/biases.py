"""Biases that a client lists: those of one token add up, and a text's bias is that of each of its tokens."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from outrider.mesh.errors import InvalidRequest
from outrider.wire.sampling import MOST_BIAS, MOST_BIASES, SamplingParams


def with_biases(sampling: SamplingParams, biases: Sequence[tuple[Sequence[int], float | None]]) -> SamplingParams:
    """``sampling`` with a bias of each listed token, in the order of the list; a bias of None bans the token.

    Raises `InvalidRequest` where the sums are out of bounds.
    """
    sums: dict[int, float] = {}
    for token, bias in ((token, bias) for ids, bias in biases if bias is not None for token in ids):
        sums[token] = sums.get(token, 0.0) + bias
    if len(sums) > MOST_BIASES or any(abs(total) > MOST_BIAS for total in sums.values()):
        why = f"adds up to more than {MOST_BIASES} tokens, or to a bias outside -{MOST_BIAS} to {MOST_BIAS}"
        raise InvalidRequest(f"logit_bias {why}", param="logit_bias")
    banned = dict.fromkeys((token,) for ids, bias in biases if bias is None for token in ids)
    return msgspec.structs.replace(sampling, logit_bias=sums, bad_words=(*sampling.bad_words, *banned))
