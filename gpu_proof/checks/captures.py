"""Captures steps as graphs while another thread copies pages, and compares replays with steps without graphs."""

from __future__ import annotations

import threading

import torch
from outrider.engine.models.llama import LlamaModel
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
    """Adds a check for each number of rows, and one for the copying thread."""
    shallow = {**sizes.config, "num_hidden_layers": min(_LAYERS, sizes.config["num_hidden_layers"])}
    sizes = _with_config(sizes, shallow)
    plain, captured = random_model(sizes, graphs=False), random_model(sizes, graphs=True)
    rows = [count for count in sizes.rows if count <= 128]
    pages = max(rows) * 4
    pools = plain.new_pool(pages, _PAGE_SIZE), captured.new_pool(pages, _PAGE_SIZE)
    for pool in pools:
        pool.data.fill_(0.5)
    with _Copying(pools[1]) as copying:
        for count in rows:
            with report.attempt(f"graph of {count} rows"):
                expected = _step(plain, pools[0], count)
                found = [_step(captured, pools[1], count) for _ in range(4)]
                same = all(torch.equal(expected, each) for each in found)
                report.check(f"a captured step of {count} rows has the bits of a step without a graph", same)
    report.check("another thread copies pages while steps are captured", not copying.error, copying.error)
    report.figures("Captures", pages_copied_meanwhile=copying.copies, sizes=len(rows))


def _with_config(sizes: Sizes, config: dict[str, object]) -> Sizes:
    from dataclasses import replace

    return replace(sizes, config=config)


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
