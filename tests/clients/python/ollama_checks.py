"""The published package ollama, against the gateway at $ONE."""

from __future__ import annotations

import os
from typing import Any

import ollama
import pytest

CLIENT = ollama.Client(os.environ["ONE"])
SAID: Any = [{"role": "user", "content": "def f("}]
OPTIONS = {"seed": 7, "num_predict": 20, "temperature": 0.8}


def test_a_chat_is_the_same_whole_and_in_pieces() -> None:
    whole = CLIENT.chat("toy", SAID, options=OPTIONS)
    told = list(CLIENT.chat("toy", SAID, options=OPTIONS, stream=True))
    assert "".join(each.message.content or "" for each in told) == whole.message.content != ""
    assert (whole.done_reason, whole.eval_count) == (told[-1].done_reason, told[-1].eval_count)


def test_a_completion_is_made() -> None:
    whole = CLIENT.generate("toy", "def f(", raw=True, options=OPTIONS)
    told = list(CLIENT.generate("toy", "def f(", raw=True, options=OPTIONS, stream=True))
    assert "".join(each.response for each in told) == whole.response != ""


def test_a_schema_holds() -> None:
    schema = {"type": "object", "properties": {"a": {"enum": ["x"]}}, "required": ["a"], "additionalProperties": False}
    assert '"x"' in (CLIENT.chat("toy", SAID, format=schema).message.content or "")


def test_functions_may_be_offered() -> None:
    def paint(colour: str) -> str:
        """Paints.

        Args:
            colour: of the paint
        """
        return colour

    called = {"role": "assistant", "tool_calls": [{"function": {"name": "paint", "arguments": {"colour": "red"}}}]}
    said = [*SAID, called, {"role": "tool", "tool_name": "paint", "content": "red"}]
    assert CLIENT.chat("toy", said, tools=[paint], options=OPTIONS).done


def test_texts_are_embedded() -> None:
    one, two = CLIENT.embed("toy", ["a", "b"]).embeddings
    assert len(one) == len(two) == 32
    assert CLIENT.embeddings("toy", "a").embedding == one


def test_models_are_listed() -> None:
    assert [each.model for each in CLIENT.list().models] == ["toy"]
    assert [each.model for each in CLIENT.ps().models] == ["toy"]
    assert "completion" in (CLIENT.show("toy").capabilities or [])


def test_errors_are_sentences() -> None:
    with pytest.raises(ollama.ResponseError, match="other") as caught:
        CLIENT.chat("other", SAID)
    assert caught.value.status_code == 404
