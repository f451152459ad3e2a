"""The definition of experts."""

from __future__ import annotations

import torch
from outrider.kernels.swiglu import reference
from torch import Tensor


def experts(x: Tensor, scores: Tensor, gate_up: Tensor, down: Tensor, active: int, *, normed: bool) -> Tensor:
    """The sum over each row's ``active`` likeliest experts, in float32.

    Args:
        x: [n, hidden].
        scores: [n, count].
        gate_up: [count, 2 * width, hidden], the gate first.
        down: [count, hidden, width].
        active: experts of a row; of equally likely ones the first.
        normed: whether a row's shares are divided by their sum.
    """
    likely = scores.float().softmax(-1)
    shares = torch.zeros_like(likely)
    chosen = likely.sort(dim=-1, descending=True, stable=True).indices[:, :active]
    shares.scatter_(1, chosen, likely.gather(1, chosen))
    if normed:
        shares /= shares.sum(-1, keepdim=True)
    gates = torch.einsum("nh,eoh->neo", x.float(), gate_up.float())
    results = torch.einsum("new,ehw->neh", reference.swiglu(gates), down.float())
    return torch.einsum("ne,neh->nh", shares, results)
