"""Samples text from the target, to train the draft on the text that it will guess.

Agarwal et al., "On-Policy Distillation of Language Models" (arXiv:2306.13649); Zhou et al., "DistillSpec"
(arXiv:2310.08461).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from outrider.engine.models.llama import LlamaModel
from outrider.kernels.batch import RaggedBatch, SequenceRows
from outrider.kernels.pool import KvPool
from outrider.training.pocket import data
from torch import Tensor
from tqdm import tqdm

PAGE = 16


def write(target: Path, stream: Path, out: Path, tokens: int, length: int, seed: int, together: int = 32) -> None:
    """Writes about ``tokens`` ids: windows of ``length`` that begin with the stream and that the target continues.

    Args:
        target: directory of the exported target.
        stream: text for the first eighth to three eighths of a window.
        out: file for the windows, end to end.
        tokens: number of ids, at least one batch of windows.
        length: tokens of a window, at most the target's context.
        seed: seed of the windows and draws. Three quarters of the windows are at temperature 1, the others at 0.7.
        together: windows of a batch.
    """
    model = LlamaModel.load(target)
    windows, draws = data.Windows(data.read(stream), seed), torch.Generator().manual_seed(seed)
    pool = model.new_pool(together * -(-length // PAGE), PAGE)
    parts: list[data.Stream] = []
    with torch.inference_mode():
        for batch in tqdm(range(-(-tokens // (together * length))), desc="sampled", mininterval=5):
            windows_begun = windows.take(batch * together * length, together, length)[:, :length]
            parts.append(_batch(model, pool, windows_begun, draws).numpy().astype(np.uint16).reshape(-1))
    data.write(parts, out)


def _batch(model: LlamaModel, pool: KvPool, ids: Tensor, draws: torch.Generator) -> Tensor:
    rows, length = ids.shape
    windows_begun = int(torch.randint(length // 8, 3 * length // 8 + 1, (1,), generator=draws))
    per_row = -(-length // PAGE)
    pages = [range(row * per_row, (row + 1) * per_row) for row in range(rows)]
    temperatures = torch.where(torch.rand(rows, 1, generator=draws) < 0.25, 0.7, 1.0)
    cached = 0
    for place in range(max(windows_begun, 1), length):
        sequences = [SequenceRows(place - cached, cached, pages[row]) for row in range(rows)]
        step = RaggedBatch.build(sequences, PAGE)
        hidden = model.forward(ids[:, cached:place].reshape(-1), step, pool)
        scores = model.logits(hidden.view(rows, place - cached, -1)[:, -1].contiguous())
        race = scores / temperatures - torch.empty_like(scores).exponential_(generator=draws).log_()
        ids[:, place] = race.argmax(-1)
        cached = place
    return ids
