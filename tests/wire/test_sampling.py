"""The parameters of a generation and their bounds: the same on both sides of the wire."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest
from msgspec.inspect import type_info
from outrider.v1 import sampling_pb2 as pb
from outrider.wire.bounds import OutOfBounds, Weight, checked
from outrider.wire.ids import pack_ids
from outrider.wire.sampling import MOST_NODES, SamplingParams, SharedParameters, Speculation

from tests.bounds import not_default

FULL = SamplingParams(**{field.name: not_default(field) for field in type_info(SamplingParams).fields})
ZEROS = {"top_p": 0.5, "repetition_penalty": 0.5, "grammar": None, "thought": None}


@pytest.mark.parametrize(
    ("kind", "message"),
    [(SamplingParams, pb.SamplingParams), (Speculation, pb.Speculation)],
    ids=["draws", "guesses"],
)
def test_a_struct_has_the_fields_of_its_message(kind: type[msgspec.Struct], message: Any) -> None:
    assert set(kind.__struct_fields__) == set(message.DESCRIPTOR.fields_by_name)


def test_what_is_unset_is_the_default() -> None:
    assert SamplingParams.from_proto(pb.SamplingParams()) == SamplingParams()
    assert Speculation.from_proto(pb.Speculation()) == Speculation()


def test_everything_crosses_the_wire() -> None:
    assert SamplingParams.from_proto(FULL.to_proto()) == FULL
    assert all(getattr(FULL, name) != getattr(SamplingParams(), name) for name in FULL.__struct_fields__)
    negative = SamplingParams(seed=-5)
    assert negative.to_proto().seed == 2**64 - 5
    assert SamplingParams.from_proto(negative.to_proto()) == negative
    for guessed in (Speculation(off=True), Speculation(drafters=("a", "b"), max_nodes=63, return_drafts=True)):
        assert Speculation.from_proto(guessed.to_proto()) == guessed


@pytest.mark.parametrize("name", SamplingParams.__struct_fields__)
def test_a_zero_that_is_said_is_no_default(name: str) -> None:
    zero = ZEROS[name] if name in ZEROS else type(getattr(FULL, name))()
    parameters = msgspec.structs.replace(FULL, **{name: zero})
    assert SamplingParams.from_proto(parameters.to_proto()) == parameters


@pytest.mark.parametrize(
    ("asked", "param", "message"),
    [
        ({"temperature": 100.5}, "temperature", "temperature must be a number from 0 to 100, not 100.5"),
        ({"temperature": math.nan}, "temperature", "temperature must be a number from 0 to 100, not nan"),
        ({"top_p": 0.0}, "top_p", "top_p must be a number above 0 and at most 1, not 0"),
        ({"top_k": -1}, "top_k", "top_k must be an integer of at least 0 (0 keeps all), not -1"),
        ({"logprobs": 21}, "logprobs", "logprobs must be an integer from 0 to 20, not 21"),
        ({"stop": ["a"] * 17}, "stop", "stop must be an array of up to 16 strings, each of 1 to 1000 characters"),
        ({"stop": ["a", ""]}, "stop[1]", "stop[1]: expected `str` of length >= 1; stop must be an array of up to 16"),
        ({"logit_bias": {7: 101}}, "logit_bias.7", "logit_bias.7: expected `float` <= 100.0; logit_bias must be an"),
        ({"logit_bias": {-7: 1}}, "logit_bias.-7", "logit_bias.-7: expected `int` >= 0; logit_bias must be an object"),
        ({"bad_words": [pb.TokenSequence(ids=b"abc")]}, "bad_words", "bad_words: 3 bytes are no whole number of"),
        ({"bad_words": [pb.TokenSequence(ids=pack_ids([-1]))]}, "bad_words[0][0]", "bad_words[0][0]: expected `int`"),
    ],
)
def test_a_refusal_names_the_parameter_and_what_it_may_hold(asked: dict[str, Any], param: str, message: str) -> None:
    with pytest.raises(OutOfBounds) as caught:
        SamplingParams.from_proto(pb.SamplingParams(**asked))
    assert caught.value.param == param
    assert str(caught.value).startswith(message)
    with pytest.raises(OutOfBounds) as placed:
        SamplingParams.from_proto(pb.SamplingParams(**asked), "a.")
    assert "bytes" in message or placed.value.param == f"a.{param}"


def test_a_refusal_of_speculation_names_its_place() -> None:
    with pytest.raises(OutOfBounds) as caught:
        Speculation.from_proto(pb.Speculation(max_nodes=MOST_NODES + 1))
    assert str(caught.value) == "speculation.max_nodes must be an integer from 1 to 63, not 64"
    assert caught.value.param == "speculation.max_nodes"


@pytest.mark.parametrize(
    ("value", "shown"), [("x" * 50, '"' + "x" * 39 + "…"), ([1], ""), (True, "true"), (1e300, "1e+300"), (0.1, None)]
)
def test_a_refusal_shows_a_value_that_is_short(value: Any, shown: str | None) -> None:
    if shown is None:
        assert checked("weight", value, Weight) == value
        return
    with pytest.raises(OutOfBounds) as caught:
        checked("weight", value, Weight)
    suffix = f", not {shown}" if shown else ""
    assert str(caught.value) == f"weight must be a number above 0 and at most 1000{suffix}"


def test_shared_parameters_are_copied_by_name() -> None:
    class Body(SharedParameters, frozen=True, kw_only=True):
        prompt: str
        seed: int | None = None

    parameters = SamplingParams.of(Body(top_k=3, temperature=0.5, prompt="a"), seed=4)
    assert parameters == SamplingParams(top_k=3, temperature=0.5, seed=4)
