"""The card of a trained drafter; every figure is computed."""

from __future__ import annotations

from collections.abc import Mapping

from outrider.training.drafters.fit import Quality

_NAMES = {
    "draft": "Draft model (DistillSpec, arXiv 2310.08461)",
    "dspark": "DSpark head (arXiv 2607.05147)",
    "eagle3": "EAGLE-3 head (arXiv 2503.01840)",
    "medusa": "Medusa heads (arXiv 2401.10774)",
}
_TEXT = """---
tags: [speculative-decoding, {kind}]
---

# {name} for {target}

`outrider drafter train` made it; `outrider up --model {target} --draft DIRECTORY` uses it. The target decides every
token, so that this drafter changes the speed of answers only.

| | |
|---|---|
| learnt from | {tokens} tokens of {answers} answers of the target: half of them greedy, half at temperature 1 |
| trained | {steps} steps, {parameters:.1f} M parameters, seed {seed}, on {device} ({machine}) |
| draft vocabulary | {vocabulary} ids of the target |

## In held-out answers, without running the engine

Tokens a step if every guess is verified; probability that drafter and target have in common, by place of the guess.

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


def card(kind: str, target: str, facts: Mapping[str, object], qualities: Mapping[str, Quality], table: str) -> str:
    """The card as Markdown; ``facts`` are the numbers of the run, ``table`` the figures in the engine, maybe empty."""
    rows = [
        f"| {name} | {each.length:.2f} | {', '.join(f'{share:.2f}' for share in each.shared)} |"
        for name, each in qualities.items()
    ]
    return _TEXT.format(
        kind=kind,
        name=_NAMES[kind],
        target=target,
        qualities="\n".join(rows),
        figures=_FIGURES.format(table=table) if table else "",
        **facts,
    )
