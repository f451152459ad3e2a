"""A real model of code fills in between a prefix and a suffix. TEST_MODEL names a directory, TEST_GGUF a file."""

from __future__ import annotations

import os
from typing import Any

import pytest
from outrider.engine import LLM, SamplingParams

PLACES = {name: os.environ.get(name, "") for name in ("TEST_MODEL", "TEST_GGUF")}
PREFIX = "def fib(n):\n    if n < 2:\n        return n\n    return "
SUFFIX = "\n\n\nassert fib(10) == 55\n"


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", PLACES)
def test_a_function_that_is_filled_in_is_right(name: str) -> None:
    if not PLACES[name]:
        pytest.skip(f"{name} names no real model")
    with LLM(PLACES[name]) as llm:
        infill = llm.tokenizer.infill
        assert infill is not None
        prompt = llm.tokenizer.encode_infill(PREFIX, SUFFIX)
        params = SamplingParams(temperature=0, max_tokens=64, stop_token_ids=infill.ends)
        (answer,) = llm.generate([prompt], params)
    assert answer.finish_reason == "stop"
    made: dict[str, Any] = {}
    exec(PREFIX + answer.text + SUFFIX, made)
    assert [made["fib"](n) for n in range(8)] == [0, 1, 1, 2, 3, 5, 8, 13]
