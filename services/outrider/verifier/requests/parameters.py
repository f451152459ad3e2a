"""Checks the wire's sampling parameters and converts them into the verifier's own."""

from __future__ import annotations

import math
from collections.abc import Sequence

from outrider.kernels.race_sample import Truncation
from outrider.mesh.errors import InvalidRequest
from outrider.models.sampling import Sampling
from outrider.v1.sampling_pb2 import SamplingParams
from outrider.verifier.logits.edits import Edits
from outrider.wire.ids import unpack_ids

_MOST_STOPS, _MOST_BIASES, _MOST_BAD_WORDS, _MOST_LOGPROBS = 16, 1024, 1024, 20


def check(holds: object, param: str, why: str) -> None:
    """Raises `InvalidRequest` about ``param`` unless ``holds`` is true."""
    if not holds:
        raise InvalidRequest(f"{param} {why}", param=param)


def known(ids: Sequence[int], param: str, vocabulary: int) -> list[int]:
    """``ids`` unchanged; `InvalidRequest` for an id outside the vocabulary."""
    inside = not ids or (min(ids) >= 0 and max(ids) < vocabulary)
    check(inside, param, f"holds an id outside the vocabulary of {vocabulary}")
    return list(ids)


class Parameters:
    """Reads ``params`` for a model of ``vocabulary`` ids. Every method raises `InvalidRequest` that names the field."""

    def __init__(self, params: SamplingParams, vocabulary: int) -> None:
        self._params, self._vocabulary = params, vocabulary

    def check_lengths(self, max_tokens: int) -> None:
        """Checks the least and most tokens of the answer; the context has room for ``max_tokens``."""
        params, least = self._params, 0 if self._params.echo else 1
        check(params.max_tokens >= least, "max_tokens", f"must be at least {least}, not {params.max_tokens}")
        check(params.min_tokens >= 0, "min_tokens", f"must be at least 0, not {params.min_tokens}")
        check(
            params.min_tokens <= max_tokens,
            "min_tokens",
            f"must be at most the {max_tokens} tokens that the answer may have, not {params.min_tokens}",
        )

    def check_grammar(self) -> None:
        """Checks that a request with a grammar sets no other rule for the end of its answer."""
        params, why = self._params, "may not be given with a grammar, which says itself where the answer may end"
        if params.HasField("grammar"):
            check(not params.ignore_eos, "ignore_eos", why)
            check(not params.min_tokens, "min_tokens", why)

    def sampling(self) -> Sampling:
        """Temperature, truncation and seed."""
        params = self._params
        top_p = params.top_p if params.HasField("top_p") else 1.0
        _check_range("temperature", params.temperature, 0, 100)
        check(params.top_k >= 0, "top_k", f"must be 0 (all) or more, not {params.top_k}")
        check(0 < top_p <= 1, "top_p", f"must be above 0 and at most 1, not {top_p:g}")
        _check_range("min_p", params.min_p, 0, 1)
        cold = math.isclose(params.temperature, 0.0, abs_tol=1e-5)
        return Sampling(0.0 if cold else params.temperature, Truncation(params.top_k, top_p, params.min_p), params.seed)

    def edits(self) -> Edits:
        """Penalties, biases and bans."""
        params = self._params
        repetition = params.repetition_penalty if params.HasField("repetition_penalty") else 1.0
        check(0 < repetition <= 100, "repetition_penalty", f"must be above 0 and at most 100, not {repetition:g}")
        _check_range("frequency_penalty", params.frequency_penalty, -2, 2)
        _check_range("presence_penalty", params.presence_penalty, -2, 2)
        return Edits(
            repetition,
            params.frequency_penalty,
            params.presence_penalty,
            self._biases(),
            self._bad_words(),
            params.min_tokens,
        )

    def stops(self) -> list[str]:
        """Strings that end the answer."""
        stops = list(self._params.stop)
        check(len(stops) <= _MOST_STOPS, "stop", f"may hold at most {_MOST_STOPS} strings, not {len(stops)}")
        check(all(stops), "stop", "may not hold an empty string")
        return stops

    def stop_ids(self) -> list[int]:
        """Ids that end the answer, besides the model's own."""
        return known(self._params.stop_token_ids, "stop_token_ids", self._vocabulary)

    def logprobs(self) -> int | None:
        """How many of the likeliest tokens frames list; None for no log-probabilities."""
        if not self._params.HasField("logprobs"):
            return None
        _check_range("logprobs", self._params.logprobs, 0, _MOST_LOGPROBS)
        return self._params.logprobs

    def _biases(self) -> dict[int, float]:
        biases = dict(self._params.logit_bias)
        check(len(biases) <= _MOST_BIASES, "logit_bias", f"may hold at most {_MOST_BIASES} ids, not {len(biases)}")
        known(list(biases), "logit_bias", self._vocabulary)
        for token, bias in biases.items():
            _check_range(f"logit_bias.{token}", bias, -100, 100)
        return {token: biases[token] for token in sorted(biases)}

    def _bad_words(self) -> tuple[tuple[int, ...], ...]:
        packed, most = [word.ids for word in self._params.bad_words], _MOST_BAD_WORDS
        check(all(len(ids) % 4 == 0 for ids in packed), "bad_words", "must be whole little-endian int32 ids")
        words = [tuple(known(unpack_ids(ids), "bad_words", self._vocabulary)) for ids in packed]
        check(len(words) <= most, "bad_words", f"may hold at most {most} sequences of tokens, not {len(words)}")
        check(all(words), "bad_words", "may not hold an empty sequence")
        return tuple(words)


def _check_range(param: str, value: float, least: float, most: float) -> None:
    check(least <= value <= most, param, f"must be between {least} and {most}, not {value:g}")
