"""Gemma 3 with the weights that were published, beside transformers. TEST_GEMMA names its folder."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from outrider.engine.models.llama import LlamaModel
from outrider.kernels.batch import SequenceRows
from tokenizers import Tokenizer
from torch import Tensor
from transformers import AutoModelForCausalLM, PreTrainedModel

from tests.engine.models.runs import PAGE_SIZE, step
from tests.kernels.choosing import kernels

REAL = os.environ.get("TEST_GEMMA")
PROMPTS, TOKENS = 20, 60
_TEXTS = Path(__file__).parents[3] / "docs" / "decisions"
_LONG, _SHORT = 4000, 300

pytestmark = [
    pytest.mark.skipif(not REAL, reason="TEST_GEMMA names no folder of a real Gemma 3"),
    pytest.mark.slow,
    pytest.mark.timeout(3600),
]


@pytest.fixture(scope="module")
def prompts() -> list[Tensor]:
    """Beginnings of texts; every fifth is longer than the model's windows."""
    tokenizer = Tokenizer.from_file(f"{REAL}/tokenizer.json")
    texts = [path.read_text() for path in sorted(_TEXTS.glob("0*.md"))]
    lengths = [_SHORT if index % 5 else _LONG for index in range(PROMPTS)]
    begun = ["".join(texts[index:])[:most] for index, most in enumerate(lengths)]
    return [torch.tensor(tokenizer.encode(text).ids) for text in begun]


def theirs(model: PreTrainedModel, prompt: Tensor, answer: list[int]) -> list[int]:
    """The likeliest token by transformers behind the prompt, and behind each token of the answer but the last."""
    ids = torch.cat([prompt, torch.tensor(answer[:-1])])
    with torch.inference_mode():
        logits = model(ids[None], logits_to_keep=len(answer)).logits[0]
    return logits.argmax(-1).tolist()  # type: ignore[no-any-return]


def ours(model: LlamaModel, prompts: list[Tensor]) -> list[list[int]]:
    """The most likely tokens of all prompts, decoded together."""
    each = -(-(max(map(len, prompts)) + TOKENS) // PAGE_SIZE)
    pages = [range(index * each, (index + 1) * each) for index in range(len(prompts))]
    pool = model.new_pool(len(prompts) * each, PAGE_SIZE)
    answers: list[list[int]] = [[] for _ in prompts]
    parts = [(ids, SequenceRows(len(ids), 0, own)) for ids, own in zip(prompts, pages, strict=True)]
    for _ in range(TOKENS):
        for answer, logits in zip(answers, step(model, pool, parts), strict=True):
            answer.append(int(logits[-1].argmax()))
        lengths = [len(ids) + len(answer) - 1 for ids, answer in zip(prompts, answers, strict=True)]
        parts = [
            (torch.tensor(answer[-1:]), SequenceRows(1, length, own))
            for answer, length, own in zip(answers, lengths, pages, strict=True)
        ]
    return answers


@pytest.mark.parametrize("backend", ["torch", "auto"])
def test_greedy_tokens_are_those_of_transformers(backend: str, prompts: list[Tensor]) -> None:
    assert max(map(len, prompts)) > 600
    with kernels(backend):
        model = LlamaModel.load(Path(str(REAL)), dtype="float32", determinism="strict")
    found = ours(model, prompts)
    del model
    reference = AutoModelForCausalLM.from_pretrained(REAL, dtype=torch.float32)
    for prompt, answer in zip(prompts, found, strict=True):
        assert answer == theirs(reference, prompt, answer)
