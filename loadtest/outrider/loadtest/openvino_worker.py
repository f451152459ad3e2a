"""OpenVINO GenAI as a process that answers lines of JSON; it is run by path, in a virtual environment of its own.

Takes the model's directory. Each line of standard input is ``{"mode", "streams", "prompts", "max_tokens"}``: all
prompts are completed greedily, so many at a time, and the answer is ``{"seconds", "tokens"}``, the tokens of each. One
stream is an `LLMPipeline`, more are a `ContinuousBatchingPipeline`; mode ``lookup`` is its prompt lookup.
"""

from __future__ import annotations

import json
import sys
import time
from functools import cache
from typing import Any

import openvino_genai as genai

GUESSES, NGRAM, CACHE_GB = 4, 3, 1


@cache
def single(model: str, lookup: bool) -> Any:
    """A pipeline for one request at a time."""
    return genai.LLMPipeline(model, "CPU", **({"prompt_lookup": True} if lookup else {}))


@cache
def batching(model: str, lookup: bool, streams: int) -> Any:
    """A pipeline for ``streams`` requests at a time, which remembers no prefixes."""
    scheduler = genai.SchedulerConfig()
    scheduler.cache_size, scheduler.max_num_seqs, scheduler.enable_prefix_caching = CACHE_GB, streams, False
    return genai.ContinuousBatchingPipeline(model, scheduler, "CPU", {"prompt_lookup": True} if lookup else {})


def config(lookup: bool, max_tokens: int) -> Any:
    """Greedy, of a fixed length."""
    made = genai.GenerationConfig()
    made.max_new_tokens, made.ignore_eos, made.do_sample = max_tokens, True, False
    if lookup:
        made.num_assistant_tokens, made.max_ngram_size = GUESSES, NGRAM
    return made


def one_by_one(model: str, lookup: bool, prompts: list[str], max_tokens: int) -> list[list[int]]:
    """The tokens of each answer."""
    pipeline, tokenizer = single(model, lookup), genai.Tokenizer(model)
    asked = (tokenizer.encode(prompt) for prompt in prompts)
    return [list(pipeline.generate(ids, config(lookup, max_tokens)).tokens[0]) for ids in asked]


def together(model: str, lookup: bool, streams: int, prompts: list[str], max_tokens: int) -> list[list[int]]:
    """The tokens of each answer."""
    pipeline = batching(model, lookup, streams)
    tokenizer, asked = pipeline.get_tokenizer(), config(lookup, max_tokens)
    handles = [pipeline.add_request(n, tokenizer.encode(text).input_ids, asked) for n, text in enumerate(prompts)]
    while pipeline.has_non_finished_requests():
        pipeline.step()
    return [list(handle.read_all()[0].generated_ids) for handle in handles]


def main() -> None:
    """Answers until standard input ends."""
    model = sys.argv[1]
    for line in sys.stdin:
        asked = json.loads(line)
        lookup, streams = asked["mode"] == "lookup", asked["streams"]
        began = time.perf_counter()
        if streams == 1:
            tokens = one_by_one(model, lookup, asked["prompts"], asked["max_tokens"])
        else:
            tokens = together(model, lookup, streams, asked["prompts"], asked["max_tokens"])
        print(json.dumps({"seconds": time.perf_counter() - began, "tokens": tokens}), flush=True)


if __name__ == "__main__":
    main()
