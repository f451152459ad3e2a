"""Logits and parameters of draws, random and on purpose awkward."""

from __future__ import annotations

import dataclasses

import torch
from outrider.kernels.race_sample import Draws, Penalties
from torch import Tensor

from tests.kernels.device import DEVICE

NEVER = float("-inf")

WAYS = ("plain", "allowed", "top_k", "top_p", "min_p", "penalties")


def parameters(rows: int, vocabulary: int, *ways: str, seed: int = 0) -> Draws:
    """Draws whose rows differ in everything named, some of them greedy."""
    generator = torch.Generator().manual_seed(seed)

    def choose(values: list[float], dtype: torch.dtype) -> Tensor:
        return torch.tensor(values)[torch.randint(len(values), (rows,), generator=generator)].to(DEVICE, dtype)

    def words(low: int, high: int, *shape: int) -> Tensor:
        return torch.randint(low, high, shape, generator=generator).to(DEVICE)

    return Draws(
        seeds=words(-(2**63), 2**63 - 1, rows),
        positions=words(0, 2**32, rows),
        temperatures=choose([0.0, 1e-4, 0.7, 1.0, 1.3, 50.0], torch.float32),
        top_k=choose([0, 1, 3, 50, vocabulary, vocabulary + 9], torch.int32) if "top_k" in ways else None,
        top_p=choose([1.0, 0.999, 0.9, 0.5, 0.01], torch.float32) if "top_p" in ways else None,
        min_p=choose([0.0, 0.02, 0.3, 1.0], torch.float32) if "min_p" in ways else None,
        penalties=_penalties(rows, vocabulary, generator) if "penalties" in ways else None,
        allowed=words(-(2**31), 2**31, rows, -(-vocabulary // 32)).int() if "allowed" in ways else None,
    )


def _penalties(rows: int, vocabulary: int, generator: torch.Generator) -> Penalties:
    sizes = torch.randint(0, min(vocabulary, 300) + 1, (rows,), generator=generator)
    listed = [torch.randperm(vocabulary, generator=generator)[: int(size)] for size in sizes]
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), sizes.cumsum(0)]).int()
    factors = torch.rand(int(sizes.sum()), generator=generator) + 0.6
    biases = torch.randn(int(sizes.sum()), generator=generator)
    return Penalties(
        offsets.to(DEVICE), torch.cat([torch.empty(0), *listed]).int().to(DEVICE), factors.to(DEVICE), biases.to(DEVICE)
    )


def of_rows(draws: Draws, order: list[int]) -> Draws:
    """The draws of some rows, in some order."""
    columns = {
        field.name: getattr(draws, field.name)[order]
        for field in dataclasses.fields(draws)
        if isinstance(getattr(draws, field.name), Tensor)
    }
    if (penalties := draws.penalties) is not None:
        bounds = penalties.offsets.tolist()
        spans = [slice(bounds[row], bounds[row + 1]) for row in order]
        sizes = torch.tensor([0] + [span.stop - span.start for span in spans])
        parts = [
            torch.cat([part[span] for span in spans])
            for part in (penalties.tokens, penalties.factors, penalties.biases)
        ]
        columns["penalties"] = Penalties(sizes.cumsum(0).int().to(penalties.offsets.device), *parts)
    return dataclasses.replace(draws, **columns)


def awkward_logits(rows: int, vocabulary: int, seed: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Logits with many ties and some entries that are impossible."""
    generator = torch.Generator().manual_seed(seed)
    logits = (torch.randn(rows, vocabulary, generator=generator) * 8).round() / 2
    impossible = torch.rand(rows, vocabulary, generator=generator) < 0.05
    return logits.masked_fill(impossible, NEVER).to(DEVICE, dtype)


def draws_like(rows: int, temperature: float, **more: object) -> Draws:
    """Draws whose rows differ in their seed alone."""
    seeds = torch.arange(rows, device=DEVICE)
    temperatures = torch.full((rows,), temperature, device=DEVICE)
    return dataclasses.replace(Draws(seeds, torch.full_like(seeds, 7), temperatures), **more)
