"""The card of a trained head; every figure is computed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from outrider.training.drafters.fit import Quality

_NAMES = {
    "dspark": "DSpark head (arXiv 2607.05147)",
    "eagle3": "EAGLE-3 head (arXiv 2503.01840)",
    "medusa": "Medusa heads (arXiv 2401.10774)",
}
_TEXT = """---
tags: [speculative-decoding, {kind}]
---

# {name} for {target}

`outrider drafter train` made it. The target decides every token, so that this head changes the speed of answers only.

| | |
|---|---|
| learnt from | {tokens} tokens of {answers} answers of the target: half of them greedy, half at temperature 1 |
| trained | {steps} steps, {parameters:.1f} M parameters, seed {seed}, on {device} ({machine}) |
| draft vocabulary | {vocabulary} ids of the target |

## In held-out answers, without running the engine

Tokens a step if every guess is verified; probability that head and target have in common, by place of the guess.

| prompts | tokens a step, greedy | in common |
|---|---|---|
{qualities}
{figures}"""
_FIGURES = """
## In the engine, alone

Held-out prompts, one at a time, all guesses verified. The predicted speed is over plain decoding of one stream, from
the costs of steps that were measured on this machine.

{table}
"""


@dataclass(frozen=True, slots=True)
class Run:
    """What a card says of a run; ``table`` is of the figures in the engine, empty without them."""

    kind: str
    target: str
    tokens: int
    answers: int
    steps: int
    parameters: int
    vocabulary: int
    seed: int
    machine: str
    device: str
    qualities: Mapping[str, Quality]
    table: str


def card(run: Run) -> str:
    """The card as Markdown."""
    rows = [
        f"| {kind} | {each.length:.2f} | {', '.join(f'{share:.2f}' for share in each.shared)} |"
        for kind, each in run.qualities.items()
    ]
    return _TEXT.format(
        kind=run.kind,
        name=_NAMES[run.kind],
        target=run.target,
        tokens=run.tokens,
        answers=run.answers,
        steps=run.steps,
        parameters=run.parameters / 1e6,
        seed=run.seed,
        device=run.device,
        machine=run.machine,
        vocabulary=run.vocabulary,
        qualities="\n".join(rows),
        figures=_FIGURES.format(table=run.table) if run.table else "",
    )
