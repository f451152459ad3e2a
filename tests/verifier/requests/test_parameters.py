"""Sampling parameters of the wire: each is taken as given, or refused by name."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

import pytest
from msgspec import structs
from outrider.engine.requests.model_limits import ModelLimits
from outrider.engine.requests.parameters import SamplingParams
from outrider.engine.requests.parameters import Speculation as EngineSpeculation
from outrider.engine.requests.sequence import Request
from outrider.engine.sampling import Sampling
from outrider.mesh.errors import InvalidRequest
from outrider.v1.sampling_pb2 import Grammar, Speculation, TokenSequence
from outrider.v1.sampling_pb2 import SamplingParams as Message
from outrider.v1.verifier_pb2 import SubmitRequest
from outrider.verifier.requests.conversion import request_from_proto
from outrider.wire import sampling as wire
from outrider.wire.ids import pack_ids

SERVED = ModelLimits(50, 100, frozenset({1}), frozenset({"ngram"}))


def read(**params: Any) -> Request:
    message = SubmitRequest(
        request_id="r",
        tenant="t",
        prompt=pack_ids([1, 2, 3]),
        sampling=Message(**{"max_tokens": 10} | params),
        speculation=Speculation(),
    )
    return request_from_proto(message, SERVED, 0.0)


def test_parameters_that_are_not_said_change_nothing() -> None:
    plain = read()
    assert plain.parameters == SamplingParams(max_tokens=10)
    assert plain.sampling == Sampling(1.0)
    assert (plain.drafters, plain.stop_ids, plain.grammar) == (None, {1}, None)


def test_what_is_unset_is_the_default_of_the_wire_and_of_the_engine() -> None:
    message = SubmitRequest(request_id="r", tenant="t", prompt=pack_ids([1, 2, 3]))
    unset = request_from_proto(message, SERVED, 0.0)
    assert (unset.parameters, unset.speculation) == (SamplingParams(), EngineSpeculation())
    assert unset.max_tokens == SERVED.context_length - 3
    assert asdict(SamplingParams()) == structs.asdict(wire.SamplingParams())
    assert asdict(EngineSpeculation()) == structs.asdict(wire.Speculation())


def test_a_prediction_arrives_as_long_as_the_context_holds_it() -> None:
    message = SubmitRequest(request_id="r", tenant="t", prompt=pack_ids([1, 2, 3]))
    for length in (0, 1, 100):
        message.prediction = pack_ids([7] * length)
        assert request_from_proto(message, SERVED, 0.0).prediction == [7] * length
    for ids, why in (([7] * 101, "has 101 tokens; the model's context holds 100"), ([50], "outside the vocabulary")):
        message.prediction = pack_ids(ids)
        with pytest.raises(InvalidRequest, match=why) as refused:
            request_from_proto(message, SERVED, 0.0)
        assert refused.value.param == "prediction"


def test_what_is_said_arrives() -> None:
    asked = read(
        repetition_penalty=1.5,
        frequency_penalty=-0.5,
        presence_penalty=2,
        logit_bias={7: 2.5, 3: -100},
        bad_words=[TokenSequence(ids=pack_ids([4, 5])), TokenSequence(ids=pack_ids([6]))],
        min_tokens=4,
        logprobs=0,
        echo=True,
        stop_token_ids=[8],
    )
    assert asked.parameters == SamplingParams(
        stop_token_ids=(8,),
        repetition_penalty=1.5,
        frequency_penalty=-0.5,
        presence_penalty=2.0,
        logit_bias={3: -100.0, 7: 2.5},
        bad_words=((4, 5), (6,)),
        min_tokens=4,
        max_tokens=10,
        logprobs=0,
        echo=True,
    )
    assert asked.stop_ids == {1, 8}
    assert read(ignore_eos=True, stop_token_ids=[8]).stop_ids == {8}
    assert read(max_tokens=0, echo=True).max_tokens == 0


@pytest.mark.parametrize(
    ("param", "value"),
    [
        ("repetition_penalty", 0.0),
        ("repetition_penalty", -1.0),
        ("repetition_penalty", math.nan),
        ("frequency_penalty", 2.5),
        ("presence_penalty", -2.5),
        ("presence_penalty", math.nan),
        ("logit_bias", {50: 1.0}),
        ("logit_bias", {-1: 1.0}),
        ("logit_bias", dict.fromkeys(range(1025), 1.0)),
        ("bad_words", [TokenSequence()]),
        ("bad_words", [TokenSequence(ids=b"123")]),
        ("bad_words", [TokenSequence(ids=pack_ids([50]))]),
        ("min_tokens", -1),
        ("min_tokens", 11),
        ("logprobs", -1),
        ("logprobs", 21),
        ("max_tokens", 0),
        ("stop_token_ids", [50]),
    ],
)
def test_a_value_out_of_range_is_refused_by_name(param: str, value: Any) -> None:
    with pytest.raises(InvalidRequest) as caught:
        read(**{param: value})
    assert (caught.value.param or "").startswith(param)


def test_priority_and_weight_arrive_and_are_refused_out_of_range() -> None:
    def ask(**more: Any) -> Request:
        return request_from_proto(
            SubmitRequest(
                request_id="r",
                tenant="t",
                prompt=pack_ids([1]),
                sampling=Message(max_tokens=1),
                **more,
            ),
            SERVED,
            0.0,
        )

    assert (ask().priority, ask().weight) == (0, 1.0)
    asked = ask(priority=-1000, weight=0.5)
    assert (asked.priority, asked.weight) == (-1000, 0.5)
    for param, value in [
        ("priority", 1001),
        ("weight", 0.0),
        ("weight", -1.0),
        ("weight", 1001.0),
        ("weight", math.nan),
    ]:
        with pytest.raises(InvalidRequest) as caught:
            ask(**{param: value})
        assert caught.value.param == param


def test_a_bias_out_of_range_is_refused_by_its_token() -> None:
    with pytest.raises(InvalidRequest) as caught:
        read(logit_bias={7: 101})
    assert caught.value.param == "logit_bias.7"


@pytest.mark.parametrize(("param", "value"), [("ignore_eos", True), ("min_tokens", 2)])
def test_nothing_but_a_grammar_says_where_its_answer_ends(param: str, value: Any) -> None:
    with pytest.raises(InvalidRequest) as caught:
        read(grammar=Grammar(regex="a"), **{param: value})
    assert caught.value.param == param


def test_the_least_length_must_fit_in_the_context() -> None:
    assert read(max_tokens=1000, min_tokens=97).max_tokens == 97
    with pytest.raises(InvalidRequest, match="at most the 97 tokens"):
        read(max_tokens=1000, min_tokens=98)
