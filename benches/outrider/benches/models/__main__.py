"""Times a step on this machine: ``python -m outrider.benches.models [--model DIR] [--rows 1,4,8,16] ...``.

Rows are a binary tree after the context. ``least`` is the time of reading the weights and of their matmuls on this
machine at PyTorch's best, without attention. On a GPU (``--device cuda``) steps run as CUDA graphs; ``no graphs`` runs
strict steps an operator at a time. If transformers is installed, its forward over equally many tokens after the same
context takes turns with Outrider's, so that other work on the machine affects both.

``python -m outrider.benches.models quality ...`` measures bits per byte instead
(`outrider.benches.models.quality`).
"""

from __future__ import annotations

import argparse
import platform
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from outrider.benches.models import quality
from outrider.benches.models.ceiling import Ceiling
from outrider.engine.models import pocket
from outrider.engine.models.llama import Determinism, LlamaModel, ModelError
from outrider.kernels.batch import RaggedBatch, SequenceRows

_PAGE_SIZE = 16
_TURN = 5
_MODES: tuple[Determinism, ...] = ("fast", "strict")

Step = Callable[[], object]


def main() -> None:
    """Prints a table of median milliseconds of steps, beside their lower bound; or bits per byte."""
    if sys.argv[1:2] == ["quality"]:
        return quality.main(sys.argv[2:])
    options = _options()
    torch.set_num_threads(options.threads)
    try:
        models = _models(options.model, options.dtype, options.device, options.kv_dtype)
    except ModelError as error:
        raise SystemExit(f"error: {error}") from None
    compiled = models["fast"].compiled
    level = f"compiled code for {compiled.library.level}" if compiled else "no compiled code"
    print(f"{_name(options.device)}, torch {torch.__version__}, {level}, {options.threads} threads")
    print(f"{options.model}, {models['fast'].dtype}, {options.context} tokens of context; median ms of a step")
    ceiling = Ceiling.measure(models["fast"].config, models["fast"].dtype, models["fast"].device)
    print(f"memory gives {ceiling.bandwidth / 1e9:.1f} GB/s, matmuls do {ceiling.peak / 1e9:.0f} Gop/s")
    print(f"{'rows':>5}" + "".join(f"{name:>14}" for name in ("least", *models, "transformers")) + f"{'ratio':>8}")
    transformers_step = _transformers(options.model, models["fast"].dtype, options.context, options.device)
    for rows in options.rows:
        steps = [_ours(model, options.context, rows) for model in models.values()]
        if transformers_step is not None:
            steps.append(transformers_step(rows))
        medians = _in_turn(steps, options.repeats)
        ratio = f"{medians[-1] / medians[0]:8.1f}" if transformers_step is not None else ""
        columns = [ceiling(rows), *medians]
        print(f"{rows:>5}" + "".join(f"{seconds * 1e3:14.2f}" for seconds in columns) + ratio, flush=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m outrider.benches.models", description=__doc__)
    parser.add_argument("--model", type=Path, default=pocket.directory("target"), help="Hugging Face directory")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--kv-dtype", default="auto", help="of keys and values in pages")
    parser.add_argument("--context", type=int, default=300, help="tokens of context before the rows")
    parser.add_argument("--rows", type=_numbers, default=[1, 2, 4, 8, 16, 32])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=40)
    return parser.parse_args()


def _models(directory: Path, dtype: str, device: str, kv_dtype: str) -> dict[str, LlamaModel]:
    """Models to time, by column heading."""

    def load(mode: Determinism, *, graphs: bool = True) -> LlamaModel:
        return LlamaModel.load(
            directory, dtype=dtype, device=device, kv_dtype=kv_dtype, determinism=mode, graphs=graphs
        )

    models: dict[str, LlamaModel] = {mode: load(mode) for mode in _MODES}
    if models["strict"].device.type == "cuda":
        models["no graphs"] = load("strict", graphs=False)
    return models


def _name(device: str) -> str:
    if torch.device(device).type == "cuda":
        return torch.cuda.get_device_name(device)
    return platform.processor() or platform.machine()


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def _ours(model: LlamaModel, context: int, rows: int) -> Step:
    pages = range(-(-(context + rows) // _PAGE_SIZE))
    pool = model.new_pool(len(pages), _PAGE_SIZE)
    prompt = RaggedBatch.build([SequenceRows(context, 0, pages)], _PAGE_SIZE, model.device)
    model.forward(_tokens(model, context), prompt, pool)
    ids, parents = _tokens(model, rows), [(node - 1) // 2 for node in range(rows)]
    parents[0] = -1

    def step() -> object:
        batch = RaggedBatch.build([SequenceRows(rows, context, pages, parents)], _PAGE_SIZE, model.device)
        return model.logits(model.forward(ids, batch, pool))

    return step


def _tokens(model: LlamaModel, count: int) -> torch.Tensor:
    return torch.arange(count, device=model.device) % model.config.vocab_size


def _transformers(directory: Path, dtype: torch.dtype, context: int, device: str) -> Callable[[int], Step] | None:
    try:
        from transformers import AutoModelForCausalLM, DynamicCache
    except ImportError:
        return None
    model: Any = AutoModelForCausalLM.from_pretrained(directory, dtype=dtype)
    model.to(device)
    cache = DynamicCache()
    ids = (torch.arange(context, device=device) % model.config.vocab_size)[None]
    with torch.inference_mode():
        model(ids, past_key_values=cache)

    def make(rows: int) -> Step:
        @torch.inference_mode()
        def step() -> object:
            logits = model(ids[:, :rows], past_key_values=cache).logits
            cache.crop(-rows)
            return logits

        return step

    return make


def _in_turn(steps: Sequence[Step], repeats: int) -> list[float]:
    """Median seconds of each step. Steps take turns of a few runs; the first run of a turn warms the caches."""
    times: list[list[float]] = [[] for _ in steps]
    for _ in range(-(-repeats // _TURN)):
        for step, seconds in zip(steps, times, strict=True):
            step()
            seconds += [_seconds(step) for _ in range(_TURN)]
    return [statistics.median(seconds) for seconds in times]


def _seconds(step: Step) -> float:
    start = time.perf_counter()
    step()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
