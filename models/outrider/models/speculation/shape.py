"""What an operator may set of a draft model's trees."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Shape:
    """How trees grow.

    Attributes:
        children: guesses below each node.
        rows: nodes grown in one run of the model, over all sequences.
        rows_each: nodes grown in one run for a sequence.
        ahead: most grown nodes of a sequence.
        least_value: a node less likely than this is neither grown nor sent.
        sent: guesses that a round's trees have together, about; many small trees cost the verifier time.
        least_sent: guesses of a tree, however many there are.
        prefill_rows: prompt tokens in one run of the model.
        rounds: runs of the model in one go, where it is compiled; elsewhere each is told of by itself.
        pages: KV pages.
        page_size: tokens a page.
    """

    children: int = 4
    rows: int = 48
    rows_each: int = 6
    ahead: int = 32
    least_value: float = 0.02
    sent: int = 128
    least_sent: int = 12
    prefill_rows: int = 256
    rounds: int = 4
    pages: int = 2048
    page_size: int = 16
