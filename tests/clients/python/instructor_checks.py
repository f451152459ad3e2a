"""The published package instructor, against the gateway at $ONE."""

from __future__ import annotations

import os
from typing import Any, Literal

import instructor
import openai
import pytest
from pydantic import BaseModel, ConfigDict

CLIENT = openai.OpenAI(base_url=f"{os.environ['ONE']}/v1", api_key="none", max_retries=0)
ASKED: Any = {"model": "toy", "messages": [{"role": "user", "content": "def f("}], "max_retries": 1}
MODES = ["TOOLS", "JSON_SCHEMA", "RESPONSES_TOOLS"]


class Paint(BaseModel):
    """Says how to paint."""

    model_config = ConfigDict(extra="forbid")
    colour: Literal["red", "green", "blue"]
    coats: Literal[1, 2, 3]


@pytest.mark.parametrize("mode", MODES)
def test_an_answer_has_its_type(mode: str) -> None:
    client = instructor.from_openai(CLIENT, mode=instructor.Mode[mode])
    assert isinstance(client.chat.completions.create(**ASKED, response_model=Paint), Paint)


@pytest.mark.parametrize("mode", ["TOOLS", "JSON_SCHEMA"])
def test_an_answer_grows_while_it_is_streamed(mode: str) -> None:
    client = instructor.from_openai(CLIENT, mode=instructor.Mode[mode])
    *_, last = client.chat.completions.create_partial(**ASKED, response_model=Paint)
    Paint.model_validate(last.model_dump())
