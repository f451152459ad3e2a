"""medusa_topk in torch operators, head by head."""

from __future__ import annotations

import torch
from outrider.kernels.medusa_topk.heads import MedusaHeads, check, features, first_of
from torch import Tensor


def medusa_topk(hidden: Tensor, heads: MedusaHeads, k: int) -> tuple[Tensor, Tensor]:
    """See `outrider.kernels.medusa_topk`."""
    check(hidden, heads, k)
    inner = torch.nn.functional.silu(features(hidden, heads)).add_(hidden[:, None])
    found = [_candidates(inner[:, head], output, k) for head, output in enumerate(heads.outputs)]
    ids, values = zip(*found, strict=True)
    return torch.stack(ids, dim=1), torch.stack(values, dim=1)


def _candidates(inner: Tensor, output: Tensor, k: int) -> tuple[Tensor, Tensor]:
    logits = torch.nn.functional.linear(inner, output).float()
    ids = first_of(logits, k)
    return ids, logits.gather(-1, ids) - torch.logsumexp(logits, dim=-1, keepdim=True)
