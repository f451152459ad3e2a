"""Captures steps as graphs while another thread copies pages, and compares replays with steps without graphs."""

from __future__ import annotations

import threading
from dataclasses import replace

import torch
from outrider.engine.models.llama import LlamaModel
from outrider.engine.models.operators.graphs import GraphForward
from outrider.kernels.batch import RaggedBatch, SequenceRows
from outrider.kernels.pool import KvPool
from torch import Tensor

from gpu_proof.model import random_model
from gpu_proof.report import Report
from gpu_proof.sizes import Sizes

_LAYERS = 2
_PAGE_SIZE = 16
_CONTEXT = 40
_PAUSE_S = 0.0002


def run(report: Report, sizes: Sizes) -> None:
    """Adds a check for each number of rows of a model with one gated block a layer and of one with experts."""
    for name, config in (("", sizes.config), (" with experts", {**sizes.config, **sizes.experts})):
        with report.attempt(f"graphs of a model{name}"):
            layers = min(_LAYERS, sizes.config["num_hidden_layers"])
            _compare(report, replace(sizes, config={**config, "num_hidden_layers": layers}), name)


def _compare(report: Report, sizes: Sizes, name: str) -> None:
    plain, captured = random_model(sizes, graphs=False), random_model(sizes, graphs=True)
    rows = [count for count in sizes.rows if count <= 128]
    pages = max(rows) * 4
    pools = plain.new_pool(pages, _PAGE_SIZE), captured.new_pool(pages, _PAGE_SIZE)
    for pool in pools:
        pool.data.fill_(0.5)
    with _Copying(pools[1]) as copying:
        for count in rows:
            with report.attempt(f"graph of {count} rows{name}"):
                expected = _step(plain, pools[0], count)
                found = [_step(captured, pools[1], count) for _ in range(4)]
                same = all(torch.equal(expected, each) for each in found)
                report.check(f"a captured step of {count} rows{name} has the bits of a step without a graph", same)
    if sizes.device.type == "cuda":
        report.check(f"steps{name} are captured", isinstance(captured.steps, GraphForward))
    report.check(f"another thread copies pages while steps{name} are captured", not copying.error, copying.error)
    report.figures("Captures", model=name.strip() or "dense", pages_copied_meanwhile=copying.copies, sizes=len(rows))


class _Copying:
    """Copies pages to the host in another thread, as a sender of pages does, for as long as it is entered."""

    def __init__(self, pool: KvPool) -> None:
        self.copies, self.error = 0, ""
        self._pool, self._stop = pool, threading.Event()
        self._thread = threading.Thread(target=self._copy, name="copying")

    def __enter__(self) -> _Copying:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _copy(self) -> None:
        try:
            while not self._stop.wait(_PAUSE_S):
                chosen = torch.arange(4, device=self._pool.data.device)
                self._pool.data.index_select(1, chosen).contiguous().cpu()
                self.copies += 1
        except RuntimeError as error:
            self.error = str(error)


def _step(model: LlamaModel, pool: KvPool, rows: int) -> Tensor:
    sequences = [SequenceRows(1, _CONTEXT, range(row * 4, row * 4 + 4)) for row in range(rows)]
    batch = RaggedBatch.build(sequences, _PAGE_SIZE, model.device)
    ids = torch.arange(rows, device=model.device) % model.config.vocab_size
    return model.logits(model.forward(ids, batch, pool))
