"""tree_attention: every row attends to its context and to its own path, whatever its sequence brings.

A plain decode step is a tree of one node, a piece of prompt a tree that is a chain (SpecInfer, Miao et al. 2023, arXiv
2305.09781). Heads are grouped (Ainslie et al. 2023, "GQA"). Scores, softmax and sums are in float32.

With a `Tiling` a row's bits depend only on what it sees: sums run over fixed blocks of absolute positions, in their
order, however the rows came to the step.
"""

from outrider.kernels.tree_attention.cpu import tree_attention
from outrider.kernels.tree_attention.pieces import Tiling
from outrider.kernels.tree_attention.plan import AttentionPlan

__all__ = ["AttentionPlan", "Tiling", "tree_attention"]
