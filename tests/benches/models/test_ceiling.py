"""The least that a step can take."""

from __future__ import annotations

import pytest
import torch
from outrider.benches.models.ceiling import Ceiling, weights
from outrider.engine.models import pocket
from outrider.engine.models.config import ModelConfig
from safetensors import safe_open


def test_the_ceiling_counts_the_weights_that_multiply_rows() -> None:
    directory = pocket.directory("target")
    config, counted = ModelConfig.load(directory), 0
    for path in directory.glob("*.safetensors"):
        with safe_open(path, "pt") as tensors:
            shapes = {name: tensors.get_slice(name).get_shape() for name in tensors.keys()}  # noqa: SIM118
        counted += sum(shape[0] * shape[1] for name, shape in shapes.items() if len(shape) == 2)
        if not config.tie:
            counted -= config.vocab_size * config.hidden_size
    assert weights(config) == counted


def test_few_rows_are_bounded_by_reading_and_many_by_products() -> None:
    ceiling = Ceiling(weights=1000, size=2, bandwidth=1e6, peak=1e7)
    assert [ceiling(rows) for rows in (1, 10, 20)] == [pytest.approx(s) for s in (0.002, 0.002, 0.004)]


def test_a_machine_is_measured() -> None:
    config = ModelConfig.load(pocket.directory("target"))
    ceiling = Ceiling.measure(config, torch.bfloat16, torch.device("cpu"))
    assert ceiling.size == 2
    assert ceiling.bandwidth > 1e8
    assert ceiling.peak > 1e8
