"""experts as a loop over the experts that rows chose, which are counted on the host."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from outrider.kernels.linear import Linear
from outrider.kernels.swiglu import swiglu
from torch import Tensor


class LoopedExperts:
    """Experts with weights of any format; see `outrider.kernels.experts.Experts`."""

    on_device = False

    def __init__(self, projections: Sequence[tuple[Linear, Linear]], active: int, *, normed: bool) -> None:
        self.dtype = projections[0][0].dtype
        self._projections, self._active, self._normed = projections, active, normed

    def __call__(self, x: Tensor, scores: Tensor) -> Tensor:
        """Each expert runs once, over all rows that are routed to it."""
        total = torch.zeros(x.shape, dtype=torch.float32, device=x.device)
        chosen, shares = self._route(scores)
        for expert, rows, places in _rows_by_expert(chosen, len(self._projections)):
            gate_up, down = self._projections[expert]
            result = down(swiglu(gate_up(x.index_select(0, rows)))).float()
            total.index_add_(0, rows, result.mul_(shares.index_select(0, places)))
        return total

    def _route(self, scores: Tensor) -> tuple[Tensor, Tensor]:
        """The experts of each row [rows, active], best first, and their shares [rows * active, 1]."""
        likely = scores.softmax(-1).sort(dim=-1, descending=True, stable=True)
        shares, chosen = (part[:, : self._active] for part in likely)
        if self._normed:
            shares = shares / shares.cumsum(-1)[:, -1:]
        return chosen, shares.reshape(-1, 1)


def _rows_by_expert(chosen: Tensor, count: int) -> Iterator[tuple[int, Tensor, Tensor]]:
    """Each expert that a row chose: its number, its rows, and their places in ``chosen``, both ascending."""
    flat = chosen.flatten()
    order = flat.argsort(stable=True)
    counts = flat.bincount(minlength=count).tolist()
    for expert, places in enumerate(torch.split(order, counts)):
        if len(places):
            yield expert, places // chosen.shape[1], places
