"""Quality of the pocket models, teacher-forced on held-out text."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from outrider.training.drafters.medusa_learner import Heads
from outrider.training.pocket.net import Llama
from torch import Tensor


@dataclass(frozen=True)
class Agreement:
    """How often the best guesses contain the target's greedy choice, and the shared probability mass."""

    top: dict[int, float]
    shared: float


def nats(model: Llama, rows: Tensor) -> Tensor:
    """Nats [n, length] of every next token of `rows` [n, length + 1]."""
    with torch.no_grad():
        losses = [F.cross_entropy(model(row[None, :-1])[0].float(), row[1:], reduction="none") for row in rows]
    return torch.stack(losses)


def bits_per_byte(nats_a_token: float, tokens: int, size: int) -> float:
    """Bits per byte of a text of `size` bytes and `tokens` tokens."""
    return nats_a_token / math.log(2) * tokens / size


class _Tally:
    def __init__(self, tops: tuple[int, ...]) -> None:
        self.tops, self.hits, self.mass, self.count = tops, dict.fromkeys(tops, 0), 0.0, 0

    def add(self, guess: Tensor, target: Tensor) -> None:
        """Compares scores [n, vocab] of a guess with the target's."""
        choices = target.argmax(-1, keepdim=True)
        ranked = guess.topk(max(self.tops), -1).indices
        for k in self.tops:
            self.hits[k] += int((ranked[:, :k] == choices).sum())
        self.mass += float(torch.minimum(guess.softmax(-1), target.softmax(-1)).sum())
        self.count += len(guess)

    def result(self) -> Agreement:
        return Agreement({k: hits / self.count for k, hits in self.hits.items()}, self.mass / self.count)


@torch.no_grad()
def draft_agreement(target: Llama, draft: Llama, rows: Tensor, tops: tuple[int, ...] = (1, 2, 4)) -> Agreement:
    """Compares the draft's scores with the target's at every position of `rows` [n, length + 1]."""
    tally = _Tally(tops)
    for row in rows:
        tally.add(draft(row[None, :-1])[0].float(), target(row[None, :-1])[0].float())
    return tally.result()


@torch.no_grad()
def head_agreement(target: Llama, heads: Heads, rows: Tensor, tops: tuple[int, ...] = (1, 4, 8)) -> list[Agreement]:
    """Compares each head's scores with the target's later scores for the same token."""
    tallies = [_Tally(tops) for _ in heads]
    for row in rows:
        hidden = target.hidden(row[None, :-1])[0]
        later = target.logits(hidden).float()
        for i, (head, tally) in enumerate(zip(heads, tallies, strict=True)):
            tally.add(target.logits(head(hidden[: -1 - i])).float(), later[1 + i :])
    return [tally.result() for tally in tallies]


@torch.no_grad()
def head_runs(target: Llama, heads: Heads, rows: Tensor, tops: tuple[int, ...] = (1, 4, 8)) -> dict[int, float]:
    """Mean number of heads, from the first on, whose ``k`` best contain the target's greedy choice."""
    totals, count = dict.fromkeys(tops, 0), 0
    for row in rows:
        hidden = target.hidden(row[None, :-1])[0]
        choices, length = target.logits(hidden).argmax(-1), len(hidden) - len(heads)
        ranked = [target.logits(head(hidden[:length])).topk(max(tops), -1).indices for head in heads]
        hits = torch.stack([guess == choices[1 + i : 1 + i + length, None] for i, guess in enumerate(ranked)])
        for k in tops:
            totals[k] += int(hits[..., :k].any(-1).long().cumprod(0).sum())
        count += length
    return {k: total / count for k, total in totals.items()}
