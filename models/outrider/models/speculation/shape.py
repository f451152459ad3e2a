"""What an operator may set of a draft model's trees."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Shape:
    """How trees grow. In a proposer ``rounds`` is 1 and, on a CPU, ``row_cost`` 0.1 unless they are set.

    Attributes:
        children: guesses below each node.
        rows: nodes grown in one run of the model, over all sequences.
        rows_each: nodes grown in one run for a sequence.
        ahead: most grown nodes of a sequence.
        least_value: a node less likely than this is neither grown nor sent.
        row_cost: what a row adds to a run, of what the first row takes. A node is grown beside likelier ones where the
            run then brings more for its time. 0 grows all: a verifier's prices say which nodes pay.
        sent: guesses that a round's trees have together, about; many small trees cost the verifier time.
        least_sent: guesses of a tree, however many there are.
        prefill_rows: prompt tokens in one run of the model.
        rounds: runs of the model before their trees are told, where it is compiled. Elsewhere each run is told of by
            itself.
        pages: KV pages.
        page_size: tokens a page.
    """

    children: int = 4
    rows: int = 48
    rows_each: int = 6
    ahead: int = 32
    least_value: float = 0.02
    row_cost: float = 0.0
    sent: int = 128
    least_sent: int = 12
    prefill_rows: int = 256
    rounds: int = 4
    pages: int = 2048
    page_size: int = 16
