"""Parameters of the library have the bounds of the wire: the same values are taken, and the same refused."""

from __future__ import annotations

import math
from dataclasses import fields
from typing import Any

import msgspec
import pytest
from outrider.engine import RequestError, SamplingParams
from outrider.engine.requests import parameters
from outrider.wire.bounds import OutOfBounds, read
from outrider.wire.sampling import Guessing, Speculation
from outrider.wire.sampling import SamplingParams as WireParams

INT32 = 2**31 - 1
INTEGERS = (True, "1", 0.5)
NUMBERS = (-math.inf, math.nan, math.inf, True, "1", None)
VALUES: dict[str, list[Any]] = {
    "temperature": [-1e-9, 0, 0.0, 100, 100.1, *NUMBERS],
    "top_p": [0, 1e-9, 1, 1.0001, *NUMBERS],
    "top_k": [-1, 0, INT32, INT32 + 1, *INTEGERS],
    "min_p": [-1e-9, 0, 1, 1.0001, *NUMBERS],
    "stop_token_ids": [[], [0], [-1], [INT32], [INT32 + 1], [1] * 64, [1] * 65, ["a"], "a", 1, None],
    "repetition_penalty": [0, 1e-9, 100, 100.1, *NUMBERS],
    "frequency_penalty": [-2.1, -2, 2, 2.1, *NUMBERS],
    "presence_penalty": [-2.1, -2, 2, 2.1, *NUMBERS],
    "logit_bias": [
        *({}, {0: -100}, {INT32: 100}, {-1: 0}, {INT32 + 1: 0}, {1: 100.1}, {1: -100.1}, {1: "a"}, {1: math.nan}),
        *(dict.fromkeys(range(1024), 1), dict.fromkeys(range(1025), 1), [1], None),
    ],
    "allowed_token_ids": [[], [0], [INT32], [-1], [INT32 + 1], [1] * 65536, [1] * 65537, ["a"], "a", 1],
    "repeat_last_n": [-2, -1, 0, INT32, INT32 + 1, None, *INTEGERS],
    "include_stop_str_in_output": [True, False, 0, 1, None],
    "skip_special_tokens": [True, False, 0, 1, None],
    "min_tokens": [-1, 0, INT32, INT32 + 1, *INTEGERS],
    "ignore_eos": [True, False, 0, 1, None],
    "seed": [-(2**63) - 1, -(2**63), 2**63 - 1, 2**63, *INTEGERS],
    "max_tokens": [-1, 0, 1, INT32, INT32 + 1, None, *INTEGERS],
    "stop": [
        *([], ["a"], ["a"] * 16, ["a"] * 17, [""], ["a" * 1000], ["a" * 1001], [1], 1, None),
    ],
    "bad_words": [[], [[1]], [[]], [[-1]], [[INT32 + 1]], [[1]] * 1024, [[1]] * 1025, [1], None],
    "logprobs": [-1, 0, 20, 21, None, *INTEGERS],
    "echo": [True, False, 0, 1, None],
    "drafters": [[], ["a"] * 16, ["a"] * 17, [1], None],
    "max_nodes": [0, 1, 63, 64, None, *INTEGERS],
    "private": [True, False, 0, None],
    "return_drafts": [True, False, 0, None],
}
GRAMMARS = {"json_schema", "regex", "choice", "grammar"}


def wire_takes(name: str, value: Any) -> bool:
    kind: type[msgspec.Struct] = Speculation if name in Speculation.__struct_fields__ else WireParams
    try:
        read(kind, {name: value})
    except OutOfBounds:
        return False
    return True


def library_takes(name: str, value: Any) -> bool:
    try:
        SamplingParams(**{"echo": True, name: value})
    except RequestError as error:
        return not (error.param and error.param.startswith(name) and error.message.startswith(error.param))
    return True


@pytest.mark.parametrize("name", VALUES)
def test_the_library_takes_what_the_wire_takes(name: str) -> None:
    taken = [(value, wire_takes(name, value)) for value in VALUES[name]]
    assert {takes for _, takes in taken} == {True, False}
    assert not [value for value, takes in taken if library_takes(name, value) != takes]


def test_every_parameter_of_the_wire_has_values_here() -> None:
    wire = {*WireParams.__struct_fields__, *Guessing.__struct_fields__, "return_drafts"}
    assert VALUES.keys() == wire - {"grammar", "thought"}
    own = {field.name for field in fields(SamplingParams)}
    assert own == VALUES.keys() | GRAMMARS | {"speculation", "prediction", "thinking_budget"}
    assert {field.name for field in fields(parameters.SamplingParams)} - {"thought"} <= own


def test_what_is_unset_is_the_default_of_the_wire() -> None:
    made, default = SamplingParams().for_engine(0, lambda words: []), WireParams()
    for field in fields(parameters.SamplingParams):
        assert getattr(made, field.name) == (
            getattr(default, field.name) or getattr(parameters.SamplingParams(), field.name)
        )


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"temperature": 100.5}, "temperature must be a number from 0 to 100, not 100.5"),
        ({"top_p": 0.0}, "top_p must be a number above 0 and at most 1, not 0"),
        ({"seed": "x"}, f"seed must be an integer from {-(2**63)} to {2**63 - 1}, or None for a random one, not 'x'"),
        ({"max_tokens": 0}, "max_tokens must be an integer of at least 1 (0 with echo), not 0"),
        ({"stop": ["a", ""]}, "stop[1] must be a text of 1 to 1000 characters, not ''"),
        ({"stop": ["a"] * 17}, "stop must be a list of up to 16 texts, each of 1 to 1000 characters"),
        ({"logit_bias": {7: 101}}, "logit_bias.7 must be a number from -100 to 100, not 101"),
        ({"bad_words": [3]}, "bad_words[0] must be a text or a list of at least one token id, not 3"),
        ({"regex": "a", "choice": ["a"]}, "choice and regex both say what the answer has to be: give one of them"),
        ({"choice": []}, "choice must be a list of at least one text"),
        ({"json_schema": 1}, "json_schema must be a dictionary or a text, not 1"),
        ({"json_schema": {"a": {1}}}, "json_schema is no JSON: Object of type set is not JSON serializable"),
        ({"speculation": "off"}, "speculation must be True or False, not 'off'"),
        ({"prediction": {"content": "a"}}, "prediction must be a text or a list of token ids"),
        ({"prediction": [1, -1]}, "prediction[1] must be an integer of at least 0, not -1"),
    ],
)
def test_a_refusal_names_the_parameter_and_what_it_may_be(asked: dict[str, Any], message: str) -> None:
    with pytest.raises(RequestError) as caught:
        SamplingParams(**asked)
    assert str(caught.value) == message
