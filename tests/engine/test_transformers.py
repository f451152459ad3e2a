"""A model's answers agree with transformers: each token is the likeliest one after the tokens before it.

TEST_MODEL names the folder of a real model, which is asked beside the shipped target.
"""

from __future__ import annotations

import os
import warnings
from pathlib import Path

import pytest
import torch
from outrider.engine.models import pocket
from outrider.engine.models.llama import LlamaModel
from outrider.engine.pages.page_table import PageTable
from outrider.engine.requests.sequence import Request
from outrider.engine.sampling import Sampling
from outrider.engine.scheduling.plan import Limits
from outrider.engine.scheduling.scheduler import Scheduler
from outrider.engine.speculation import DrafterContext
from outrider.engine.speculation.drafters.ngram_drafter import NgramDrafter
from outrider.engine.text import Tokenizer
from outrider.measure.load import prompts

from tests.engine.engines import accepted_guesses, build_engine

REAL = os.environ.get("TEST_MODEL")


def ours(directory: Path, ids: list[list[int]], most: int) -> list[list[int]]:
    """The greedy answers to prompts, each of at most ``most`` tokens."""
    model, tokenizer = LlamaModel.load(directory, dtype="float32", determinism="strict"), Tokenizer.load(directory)
    config = model.config
    drafter = NgramDrafter(DrafterContext(tokenizer.fingerprint, config.vocab_size, config.context_length))
    scheduler = Scheduler(Limits(16, 64, 256, 64, 31, 16, config.context_length), PageTable(1024), b"")
    engine = build_engine(model, tokenizer, scheduler, [drafter])
    eos = frozenset(tokenizer.eos_token_ids)
    for index, prompt in enumerate(ids):
        engine.submit(Request(str(index), "t", prompt, Sampling(0.0), most, stop_ids=eos))
    said: dict[str, list[int]] = {str(index): [] for index in range(len(ids))}
    while engine.busy:
        for request, frame in engine.step().outputs:
            said[request.id].extend(frame.tokens)
    assert accepted_guesses(engine)["ngram"] > 0
    assert all(len(answer) == most or answer[-1] in eos for answer in said.values())
    return [*said.values()]


def others(directory: Path, ids: list[list[int]], said: list[list[int]]) -> list[float]:
    """Differences of logits at the places where another token is the likeliest under transformers."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from transformers import AutoModelForCausalLM

        theirs, gaps = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32), []
    for prompt, answer in zip(ids, said, strict=True):
        with torch.inference_mode():
            logits = theirs(torch.tensor([prompt + answer])).logits[0, len(prompt) - 1 : -1]
        chosen = logits.gather(1, torch.tensor(answer)[:, None])[:, 0]
        gaps += [gap for gap in (logits.amax(-1) - chosen).tolist() if gap > 0]
    return gaps


def prompts_of(directory: Path, count: int) -> list[list[int]]:
    tokenizer = Tokenizer.load(directory)
    return [tokenizer.encode(text)[:200] for text in prompts.held_out()[:count]]


def test_twenty_greedy_answers_are_those_of_transformers() -> None:
    directory = pocket.directory("target")
    ids = prompts_of(directory, 20)
    assert others(directory, ids, ours(directory, ids, 32)) == []


@pytest.mark.skipif(not REAL, reason="TEST_MODEL names no folder of a real model")
@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_forty_greedy_answers_of_a_real_model_are_those_of_transformers_but_for_near_ties() -> None:
    directory = Path(str(REAL))
    ids = prompts_of(directory, 40)
    said = ours(directory, ids, 100)
    ties = others(directory, ids, said)
    print(f"{len(ties)} of {sum(map(len, said))} tokens differ, by logits {ties}")
    assert max(ties, default=0.0) < 1e-3
    assert len(ties) < 5
