"""The model card: models, data, training and held-out figures; every figure is computed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from outrider.training.pocket.checkpoint import TrainingClock
from outrider.training.pocket.corpus import Corpus
from outrider.training.pocket.net import Shape
from outrider.training.pocket.quality import Agreement


@dataclass(frozen=True)
class HeldOutFigures:
    """Held-out figures of the three models."""

    target_bits: float
    draft_bits: float
    early_bits: float
    late_bits: float
    draft: Agreement
    draft_own: Agreement
    heads: Sequence[Agreement]
    runs: Mapping[int, float]


@dataclass(frozen=True)
class TrainingSummary:
    """The course of training: a clock for each model, parameter counts, the machine in words."""

    target: TrainingClock
    draft: TrainingClock
    medusa: TrainingClock
    parameters: dict[str, int]
    machine: str
    python: str
    notes: Sequence[str] = ()


TEXT = """---
license: psf-2.0
language: [code]
library_name: transformers
tags: [python, speculative-decoding, medusa, draft-model]
---

# The pocket models

A small language model of Python source, a draft model that guesses for it, and Medusa heads on it. They exist so
that a speculative-decoding mesh can be tried, tested and measured with real, trained weights on a machine without
a GPU. They complete code in the manner of the standard library; they are not a programming assistant.

| | parameters | layers x width | heads / kv | trained on |
|---|---|---|---|---|
{sizes}

All share one byte-level BPE tokenizer of {vocab} tokens and load as `LlamaForCausalLM`; the heads are in the layout
of Medusa-1 (`{{head}}.0.linear.weight`, `.bias`) with the target's output layer for their own.

## Data

{library} files of the standard library of CPython {python} ({library_mb:.1f} MB) and {tests} files of its test suite
({tests_mb:.1f} MB), under the PSF licence. Windows of the library are drawn {repeats} times as often. Held out,
chosen by a hash of the path: {heldout} library files, {heldout_mb:.2f} MB, listed with digests in `heldout.json`;
{dropped} more share over 30 % of their long lines with the training text and are in neither part.

## Training

{machine}.

bfloat16 weights with float32 masters; Muon on matrices, AdamW on the embedding and norms. The draft and the heads
learn the target's distribution (weight 0.9) and the text (0.1); half of what the draft sees is text that the target
itself went on with.
{notes}
## Held-out figures

| | bits per byte |
|---|---|
| target | {target_bits:.3f} |
| draft | {draft_bits:.3f} |

Target by position in a window of {context} tokens: {early_bits:.3f} bits per byte over the first 512,
{late_bits:.3f} over the rest.

Teacher-forced, against the target's own greedy choice for the same token; *shared* is the probability mass that guess
and target have in common, the chance that a token drafted at temperature 1 is accepted:

| guess | {tops_header} | shared |
|---|{tops_rule}---|
{draft_row}
{own_row}

| Medusa head | {heads_header} | shared |
|---|{heads_rule}---|
{head_rows}

Guesses of the heads alone that a greedy step accepts on average, by how many guesses each head has: {runs}.

## Limits

- {million:.1f} M parameters and about {tokens:.1f} M tokens: the text has Python's form and seldom a purpose. Long
  greedy completions fall into repetition, which flatters acceptance; judge on the figures above and on sampled text.
- The tokenizer joins a line's end with the next line's indent: a prompt that ends with a bare newline is continued
  at the left margin more often than it should be. End prompts at the last visible character.
- The chat template is form only; there was no dialogue in training.
- English prose, other languages and other programming languages are outside what it has seen.
- The text is learnt from PSF-licensed source; short passages of it may come out word for word.
"""


def _megabytes(documents: Sequence[object]) -> float:
    return sum(len(getattr(d, "text", "").encode()) for d in documents) / 1e6


def _size_row(name: str, count: int, shape: Shape, clock: TrainingClock) -> str:
    trained = f"{clock.seen / 1e6:.1f} M tokens, {clock.seconds / 60:.0f} min"
    heads = f"{shape.heads} / {shape.kv_heads}"
    return f"| {name} | {count / 1e6:.2f} M | {shape.layers} x {shape.width} | {heads} | {trained} |"


def _agreement_row(name: str, agreement: Agreement) -> str:
    cells = " | ".join(f"{share:.3f}" for share in agreement.top.values())
    return f"| {name} | {cells} | {agreement.shared:.3f} |"


def _columns(agreement: Agreement) -> tuple[str, str]:
    return " | ".join(f"in top {k}" for k in agreement.top), "---|" * len(agreement.top)


def card(
    corpus: Corpus, repeats: int, shapes: tuple[Shape, Shape], summary: TrainingSummary, figures: HeldOutFigures
) -> str:
    """The card as Markdown."""
    target, draft = shapes
    counts = summary.parameters
    heads = f"| Medusa | {counts['medusa'] / 1e6:.2f} M | {len(figures.heads)} heads | - | "
    heads += f"{summary.medusa.seen / 1e6:.1f} M tokens, {summary.medusa.seconds / 60:.0f} min |"
    tops_header, tops_rule = _columns(figures.draft)
    heads_header, heads_rule = _columns(figures.heads[0])
    rows = [_agreement_row(f"{i} ({i + 2} tokens ahead)", a) for i, a in enumerate(figures.heads)]
    return TEXT.format(
        sizes="\n".join(
            [
                _size_row("target", counts["target"], target, summary.target),
                _size_row("draft", counts["draft"], draft, summary.draft),
                heads,
            ]
        ),
        vocab=target.vocab,
        context=target.context,
        python=summary.python,
        machine=summary.machine,
        notes="".join(f"\n{note}\n" for note in summary.notes),
        repeats=repeats,
        library=len(corpus.library),
        library_mb=_megabytes(corpus.library),
        tests=len(corpus.tests),
        tests_mb=_megabytes(corpus.tests),
        heldout=len(corpus.heldout),
        heldout_mb=_megabytes(corpus.heldout),
        dropped=len(corpus.dropped),
        target_bits=figures.target_bits,
        draft_bits=figures.draft_bits,
        early_bits=figures.early_bits,
        late_bits=figures.late_bits,
        tops_header=tops_header,
        tops_rule=tops_rule,
        draft_row=_agreement_row("draft", figures.draft),
        own_row=_agreement_row("draft, in what the target itself goes on with", figures.draft_own),
        heads_header=heads_header,
        heads_rule=heads_rule,
        head_rows="\n".join(rows),
        runs=", ".join(f"{length:.2f} with {k}" for k, length in figures.runs.items()),
        million=counts["target"] / 1e6,
        tokens=summary.target.seen / 1e6,
    )
