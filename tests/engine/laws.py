"""The law of a toy target's answers by enumeration, and how well draws follow it."""

from __future__ import annotations

import itertools
from collections import Counter

import torch
from outrider.engine.requests.sequence import Request
from outrider.engine.sampling import Sampling
from outrider.kernels.batch import RaggedBatch, SequenceRows
from outrider.kernels.race_sample import Truncation

from tests.engine.engines import CheckedEngine

VOCABULARY, PROMPT, DRAWS, TEMPERATURE = 4, [1, 2, 0], 2_500, 1.3


def exact_law(engine: CheckedEngine, truncation: Truncation) -> dict[tuple[int, ...], float]:
    """Probability of every three tokens, from the target's own logits one sequence at a time."""
    model = engine.runner.model
    sampling = Sampling(TEMPERATURE, truncation)
    law = {}
    for tokens in itertools.product(range(VOCABULARY), repeat=3):
        ids = PROMPT + list(tokens)
        pool = model.new_pool(2, 8)
        with torch.inference_mode():
            batch = RaggedBatch.build([SequenceRows(len(ids), 0, [0, 1], None)], 8, device="cpu")
            logits = model.logits(model.forward(torch.tensor(ids), batch, pool))
        steps = sampling.shape(logits[2:5]).double().softmax(-1)
        law[tokens] = float(steps[range(3), tokens].prod())
    return law


def answers(engine: CheckedEngine, requests: list[Request]) -> Counter[tuple[int, ...]]:
    """The verifier's answers to all requests, 64 at a time, because every step searches the whole queue."""
    counts = Counter[tuple[int, ...]]()
    for start in range(0, len(requests), 64):
        for request in requests[start : start + 64]:
            engine.submit(request)
        said: dict[str, list[int]] = {}
        while engine.busy:
            for request, frame in engine.step().outputs:
                said.setdefault(request.id, []).extend(frame.tokens)
        counts.update(map(tuple, said.values()))
    return counts


def chi_square(law: dict[tuple[int, ...], float], counts: Counter[tuple[int, ...]]) -> tuple[float, int]:
    """Statistic and degrees of freedom, cells that expect fewer than 8 taken together."""
    draws = counts.total()
    common = [key for key, p in law.items() if p * draws >= 5]
    rest = 1 - sum(law[key] for key in common)
    cells = [(counts[key], law[key] * draws) for key in common]
    cells.append((draws - sum(count for count, _ in cells), max(rest * draws, 1.0)))
    return sum((count - expected) ** 2 / expected for count, expected in cells), len(cells) - 1
