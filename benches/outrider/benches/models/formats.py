"""Times steps of a model with its weights in several formats.

    python -m outrider.benches.models.formats PATH...

Each PATH is a Hugging Face directory or a GGUF file; ``PATH=int8`` and ``PATH=int4`` quantize its weights at load. The
formats take turns, so that other work on the machine affects all of them; the first format runs a second time as a
control. Rows belong to one sequence each. Beside the times of steps stand the bytes of weights that a step of one row
reads a second, and their share of what plain reading of memory gives in the same turns.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from outrider.engine.models.llama import LlamaModel, ModelError
from outrider.engine.models.threads import use_threads
from outrider.kernels.batch import RaggedBatch, SequenceRows
from torch import Tensor

_PAGE_SIZE = 16
_READ = 1 << 28
_PREFILL_ROWS = 256


def main() -> None:
    """Prints median milliseconds of steps by rows, bytes read a second, and tokens of a prompt a second."""
    options = _options()
    threads = use_threads(options.threads)
    formats: dict[str, Bench] = {}
    try:
        for text in options.formats:
            formats[text] = Bench(_load(text), options.context, max(options.rows))
    except ModelError as error:
        raise SystemExit(f"error: {error}") from None
    memory = torch.ones(_READ)
    turns: dict[str, list[Callable[[], object]]] = {"memory": [memory.sum]}
    for name, bench in [*formats.items(), ("control", next(iter(formats.values())))]:
        turns[name] = [*(bench.step(rows) for rows in options.rows), bench.prefill]
    seconds = _medians(turns, options.repeats)
    bandwidth = memory.nbytes / seconds["memory"][0]
    print(f"{threads} threads, {options.context} tokens of context; memory gives {bandwidth / 1e9:.1f} GB/s")
    print(f"{'rows, ms':>24}" + "".join(f"{rows:>8}" for rows in options.rows) + "    GB/s  share  prompt tokens/s")
    for name in [*formats, "control"]:
        bench = formats.get(name) or formats[options.formats[0]]
        *steps, prefill = seconds[name]
        speed = bench.bytes / steps[0]
        figures = "".join(f"{each * 1e3:8.2f}" for each in steps)
        share = f"{speed / 1e9:8.1f}{speed / bandwidth:7.2f}"
        print(f"{Path(name).name:>24}{figures}{share}{_PREFILL_ROWS / prefill:17.0f}", flush=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m outrider.benches.models.formats", description=__doc__)
    parser.add_argument("formats", nargs="+", metavar="PATH[=int8|=int4]")
    parser.add_argument("--context", type=int, default=256, help="tokens of context before each row")
    parser.add_argument(
        "--rows", type=lambda text: [int(part) for part in text.split(",")], default=[1, 2, 4, 8, 16, 32, 64]
    )
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--repeats", type=int, default=15)
    return parser.parse_args()


def _load(text: str) -> LlamaModel:
    path, _, quantization = text.partition("=")
    chosen: Any = quantization or None
    return LlamaModel.load(Path(path), determinism="strict", quantization=chosen)


class Bench:
    """Steps of one model.

    Attributes:
        bytes: of weights that a step of one row reads.
    """

    def __init__(self, model: LlamaModel, context: int, rows: int) -> None:
        if model.compiled is None:
            raise SystemExit("error: a model does not run on the compiled decoder")
        self._model, self._context = model, context
        self._each = -(-(context + 1) // _PAGE_SIZE)
        prompt = -(-_PREFILL_ROWS // _PAGE_SIZE)
        self._pool = model.new_pool(max(self._each * rows, prompt), _PAGE_SIZE)
        self.bytes = model.compiled.weight_bytes

    def step(self, rows: int) -> Callable[[], Tensor]:
        """A step that decodes ``rows`` sequences."""
        sequences = [SequenceRows(1, self._context, range(i * self._each, (i + 1) * self._each)) for i in range(rows)]
        ids = torch.arange(rows)

        def run() -> Tensor:
            batch = RaggedBatch.build(sequences, _PAGE_SIZE, self._model.device)
            return self._model.logits(self._model.forward(ids, batch, self._pool))

        return run

    def prefill(self) -> Tensor:
        """A step that reads the beginning of a prompt."""
        pages = range(-(-_PREFILL_ROWS // _PAGE_SIZE))
        batch = RaggedBatch.build([SequenceRows(_PREFILL_ROWS, 0, pages)], _PAGE_SIZE, self._model.device)
        return self._model.forward(torch.arange(_PREFILL_ROWS), batch, self._pool)


def _medians(turns: dict[str, list[Callable[[], object]]], repeats: int) -> dict[str, list[float]]:
    """Median seconds of each piece of work. The first run of a turn warms the caches and is not counted."""
    times: dict[str, list[list[float]]] = {name: [[] for _ in works] for name, works in turns.items()}
    for _ in range(repeats):
        for name, works in turns.items():
            for work, seconds in zip(works, times[name], strict=True):
                work()
                began = time.perf_counter()
                work()
                seconds.append(time.perf_counter() - began)
    return {name: [statistics.median(each) for each in every] for name, every in times.items()}


if __name__ == "__main__":
    main()
