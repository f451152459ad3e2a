"""The target's own text, for the draft to learn on: what it will be asked about is what the target says.

Agarwal et al., "On-Policy Distillation of Language Models" (arXiv:2306.13649); Zhou et al., "DistillSpec"
(arXiv:2310.08461).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from outrider.kernels.batch import RaggedBatch, SequenceRows
from outrider.kernels.pool import KvPool
from outrider.models.llama import LlamaModel
from outrider.models.pocket.recipe import data
from torch import Tensor
from tqdm import tqdm

PAGE = 16


def write(target: Path, stream: Path, out: Path, tokens: int, length: int, seed: int, together: int = 32) -> None:
    """Saves about ``tokens`` ids: windows of ``length``, each begun by the stream and gone on with by the target.

    Args:
        target: its directory, as exported.
        stream: text to begin with, the first eighth to three eighths of a window.
        out: where the windows are written, end to end.
        tokens: at least one batch of windows is written.
        length: of a window; the target's context holds it.
        seed: of the windows and draws. Most draws are at temperature 1, a quarter at 0.7.
        together: windows a batch.
    """
    model = LlamaModel.load(target)
    windows, draws = data.Windows(data.read(stream), seed), torch.Generator().manual_seed(seed)
    pool = model.new_pool(together * -(-length // PAGE), PAGE)
    parts: list[data.Stream] = []
    with torch.inference_mode():
        for batch in tqdm(range(-(-tokens // (together * length))), desc="sampled", mininterval=5):
            begun = windows.take(batch * together * length, together, length)[:, :length]
            parts.append(_batch(model, pool, begun, draws).numpy().astype(np.uint16).reshape(-1))
    data.write(parts, out)


def _batch(model: LlamaModel, pool: KvPool, ids: Tensor, draws: torch.Generator) -> Tensor:
    rows, length = ids.shape
    begun = int(torch.randint(length // 8, 3 * length // 8 + 1, (1,), generator=draws))
    each = -(-length // PAGE)
    pages = [range(row * each, (row + 1) * each) for row in range(rows)]
    heat = torch.where(torch.rand(rows, 1, generator=draws) < 0.25, 0.7, 1.0)
    known = 0
    for place in range(max(begun, 1), length):
        works = [SequenceRows(place - known, known, pages[row]) for row in range(rows)]
        step = RaggedBatch.build(works, PAGE)
        hidden = model.forward(ids[:, known:place].reshape(-1), step, pool)
        scores = model.logits(hidden.view(rows, place - known, -1)[:, -1].contiguous())
        race = scores / heat - torch.empty_like(scores).exponential_(generator=draws).log_()
        ids[:, place] = race.argmax(-1)
        known = place
    return ids
