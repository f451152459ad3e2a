"""tree_walk: which guesses of verified trees come true, by the race rule, for all sequences of a step at once."""

from __future__ import annotations

from outrider.kernels.backend import takes_triton
from outrider.kernels.tree_walk import reference
from outrider.kernels.tree_walk.walks import MOST_GUESSES, Trees, Walks

__all__ = ["MOST_GUESSES", "Trees", "Walks", "tree_walk"]


def tree_walk(trees: Trees, depth: int) -> Walks:
    """Follows each sequence's own draws through its tree for as long as someone guessed what was drawn.

    What comes out is what one draw after another would have emitted, whatever the guesses are. Of several guesses
    of the same token behind the same parent the eldest is followed.

    Args:
        trees: of the sequences, with what was drawn at their rows.
        depth: guesses that are followed at most, 0 or more; no less than the depth of the deepest tree.

    Raises:
        ValueError: tensors that do not fit each other.
    """
    if takes_triton(trees.drawn.device):
        from outrider.kernels.tree_walk import triton

        return triton.tree_walk(trees, depth)
    return reference.tree_walk(trees, depth)
