"""OpenVINO GenAI as a process that answers lines of JSON; run by path, in its own virtual environment.

The arguments are the directories of the exported target and, optionally, of the draft model or the head. A line of
standard input is ``{"mode", "kv", "guesses", "streams", "prompts", "max_tokens"}``: the worker answers all
prompts greedily, ``streams`` at a time, each with at most its own ``max_tokens``. The answer is ``{"seconds", "tokens",
"prompt_tokens"}``: the tokens of each answer, and the number of each prompt's tokens.

``mode`` is ``plain``, ``lookup`` (prompt lookup) or ``draft``; ``kv`` is the precision of the KV cache. Prompts go
through the model's template, and the model ends answers. Each mode and precision has a `ContinuousBatchingPipeline`,
kept as long as memory suffices.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import openvino_genai as genai

NGRAM, CACHE_GB = 3, 1
AT_ONCE = 64
_PIPELINES: dict[tuple[str, str], Any] = {}


def pipeline(request: dict[str, Any], models: list[str]) -> Any:
    """The pipeline of a mode and a precision; deletes the oldest pipelines if memory is short."""
    key = request["mode"], request["kv"]
    if key not in _PIPELINES:
        needed = 2 * sum(file.stat().st_size for model in models for file in Path(model).glob("*.bin"))
        while _PIPELINES and available() < needed:
            del _PIPELINES[next(iter(_PIPELINES))]
            gc.collect()
        _PIPELINES[key] = make(*key, models)
        _PIPELINES[key].generate(["Warm-up"], [config(request, _PIPELINES[key], 8)])
    return _PIPELINES[key]


def available() -> int:
    """Bytes of memory that are free or can be freed."""
    return next(int(line.split()[1]) << 10 for line in open("/proc/meminfo") if line.startswith("MemAvailable"))


def make(mode: str, kv: str, models: list[str]) -> Any:
    """A pipeline without a prefix cache."""
    scheduler = genai.SchedulerConfig()
    scheduler.cache_size, scheduler.max_num_seqs, scheduler.enable_prefix_caching = CACHE_GB, AT_ONCE, False
    options: dict[str, Any] = {"KV_CACHE_PRECISION": kv}
    if mode == "lookup":
        options["prompt_lookup"] = True
    if mode == "draft":
        options["draft_model"] = genai.draft_model(models[1], "CPU", KV_CACHE_PRECISION=kv)
    return genai.ContinuousBatchingPipeline(models[0], scheduler, "CPU", options)


def config(request: dict[str, Any], engine: Any, max_tokens: int) -> Any:
    """Greedy generation of at most ``max_tokens`` tokens; the model ends its answer."""
    generation = engine.get_config()
    generation.max_new_tokens, generation.ignore_eos, generation.do_sample = max_tokens, False, False
    if request["mode"] != "plain":
        generation.num_assistant_tokens = request["guesses"]
    if request["mode"] == "lookup":
        generation.max_ngram_size = NGRAM
    return generation


def encode(request: dict[str, Any], tokenizer: Any) -> list[Any]:
    """The tokens of each prompt."""
    chats = ([{"role": "user", "content": prompt}] for prompt in request["prompts"])
    texts = (tokenizer.apply_chat_template(chat, add_generation_prompt=True) for chat in chats)
    return [tokenizer.encode(text, add_special_tokens=False).input_ids for text in texts]


def answer(request: dict[str, Any], engine: Any) -> dict[str, Any]:
    """Answers all prompts; the time includes templates and tokenization, as for the other engines."""
    began = time.perf_counter()
    prompts = encode(request, engine.get_tokenizer())
    configs = [config(request, engine, max_tokens) for max_tokens in request["max_tokens"]]
    if request["streams"] == 1:
        tokens = [
            engine.generate([ids], [generation])[0].m_generation_ids[0]
            for ids, generation in zip(prompts, configs, strict=True)
        ]
    else:
        tokens = together(engine, prompts, configs, request["streams"])
    seconds = time.perf_counter() - began
    return {"seconds": seconds, "tokens": tokens, "prompt_tokens": [ids.shape[1] for ids in prompts]}


def together(engine: Any, prompts: list[Any], configs: list[Any], streams: int) -> list[list[int]]:
    """The tokens of each answer; at most ``streams`` requests run at a time."""
    handles: list[Any] = []
    while len(handles) < len(prompts) or engine.has_non_finished_requests():
        running = sum(handle.get_status() == genai.GenerationStatus.RUNNING for handle in handles)
        for number in range(len(handles), min(len(prompts), len(handles) + streams - running)):
            handles.append(engine.add_request(number, prompts[number], configs[number]))
        engine.step()
    return [list(handle.read_all()[0].generated_ids) for handle in handles]


def main() -> None:
    """Answers requests until standard input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        request = json.loads(line)
        print(json.dumps(answer(request, pipeline(request, sys.argv[1:]))), file=answers, flush=True)


if __name__ == "__main__":
    main()
