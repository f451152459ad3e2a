"""Settings of a draft model's trees."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TreeShape:
    """How trees grow. In a proposer, ``rounds`` defaults to 1 and, on a CPU, ``row_cost`` to 0.1.

    Attributes:
        children: guesses below each node.
        rows: nodes grown in one run of the model, over all sequences.
        rows_each: nodes of one sequence grown in one run.
        ahead: most grown nodes of a sequence.
        least_value: least probability of a node that is grown or sent.
        row_cost: time that a row adds to a run, relative to the first row. A node is grown only if it raises the value
            of the run for its time. 0 grows all nodes.
        sent: approximate sum of guesses of a round's trees; many small trees cost the verifier time.
        least_sent: guesses of a tree in any case.
        prefill_rows: prompt tokens in one run of the model.
        rounds: runs of a compiled model before `draft` returns its trees; other models return after each run.
        pages: KV pages.
        page_size: tokens of a page.
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
