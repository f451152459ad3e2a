"""The shipped target says what transformers makes of it: each token is the likeliest behind those before it."""

from __future__ import annotations

import warnings

import torch
from outrider.loadtest import prompts
from outrider.models import pocket
from outrider.models.llama import LlamaModel
from outrider.models.pages import PageTable
from outrider.models.sampling import Sampling
from outrider.models.speculation import DrafterContext
from outrider.models.speculation.ngram_drafter import NgramDrafter
from outrider.models.text import Tokenizer
from outrider.verifier.answer import Answers
from outrider.verifier.engine import Engine
from outrider.verifier.runner import Runner
from outrider.verifier.scheduler import Limits, Scheduler
from outrider.verifier.sequence import Request

from tests.verifier.conftest import ALWAYS_PAYS

PROMPTS, TOKENS = 20, 32


def ours(ids: list[list[int]]) -> dict[str, list[int]]:
    directory = pocket.directory("target")
    model, tokenizer = LlamaModel.load(directory, dtype="float32", determinism="strict"), Tokenizer.load(directory)
    config = model.config
    drafter = NgramDrafter(DrafterContext(tokenizer.fingerprint, config.vocab_size, config.context_length))
    scheduler = Scheduler(Limits(16, 64, 256, 64, 31, 16, config.context_length), PageTable(1024), b"")
    engine = Engine(Runner(model, 1024, 16), scheduler, ALWAYS_PAYS, Answers(tokenizer), [drafter])
    eos = frozenset(config.eos_token_ids)
    for index, prompt in enumerate(ids):
        engine.submit(Request(str(index), "t", prompt, Sampling(), TOKENS, stop_ids=eos))
    said: dict[str, list[int]] = {str(index): [] for index in range(len(ids))}
    while engine.busy:
        for request, frame in engine.step().frames:
            said[request.id].extend(frame.tokens)
    assert engine.tally.accepted["ngram"] > 0
    return said


def test_twenty_greedy_answers_are_those_of_transformers() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from transformers import AutoModelForCausalLM

        directory = pocket.directory("target")
        theirs = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32)
        tokenizer = Tokenizer.load(directory)
        ids = [tokenizer.encode(text)[:200] for text in prompts.held_out()[:PROMPTS]]
        said = ours(ids)
        for index, prompt in enumerate(ids):
            answer = said[str(index)]
            assert len(answer) == TOKENS or answer[-1] == theirs.generation_config.eos_token_id
            with torch.inference_mode():
                logits = theirs(torch.tensor([prompt + answer])).logits[0]
            assert logits[len(prompt) - 1 : -1].argmax(-1).tolist() == answer
