"""The published package dspy, against the gateway at $ONE."""

from __future__ import annotations

import os

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # otherwise it fetches a list of prices

from typing import Any

import dspy
import pytest

NAME, BASE = os.environ.get("MODEL", "toy"), f"{os.environ['ONE']}/v1"


def lm(**more: Any) -> dspy.LM:
    return dspy.LM(f"openai/{NAME}", api_base=BASE, api_key="none", cache=False, num_retries=0, **more)


@pytest.mark.parametrize("api", ["chat", "responses"])
def test_a_model_answers(api: str) -> None:
    (told,) = lm(max_tokens=20, temperature=0, model_type=api)("def f(")
    assert told if isinstance(told, str) else told["text"]
