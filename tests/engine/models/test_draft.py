"""Draft models: all that a guess needs is rounded further than a target."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from outrider.engine.errors import ModelError
from outrider.engine.models import pocket
from outrider.engine.models.draft import load_draft
from outrider.engine.models.llama import LlamaModel

from tests.engine.models.checkpoints import tokens
from tests.engine.models.runs import whole
from tests.kernels.choosing import kernels
from tests.toy_model import save_toy

IDS = tokens(40)
TARGET = pocket.directory("target")  # 256 wide, and 704 inside: a multiple of 32 and not of 128


@pytest.fixture(scope="module")
def plain() -> LlamaModel:
    model = LlamaModel.load(TARGET)
    if model.compiled is None:
        pytest.skip("there is no compiled decoder here")
    return model


def weight_bytes(model: LlamaModel) -> int:
    assert model.compiled is not None
    return model.compiled.weight_bytes


def output_bits(model: LlamaModel) -> int:
    """Bits of the output layer's quants; 0 if it is not quantized."""
    assert model.compiled is not None
    return int(model.compiled.weights[-1].format.bits)


def test_a_draft_model_is_in_eight_bits_with_its_output_layer_where_four_do_not_fit(plain: LlamaModel) -> None:
    draft = load_draft(TARGET)
    assert output_bits(draft) == 8
    assert weight_bytes(draft) < 0.53 * weight_bytes(plain)
    expected, found = whole(plain, IDS), whole(draft, IDS)
    assert 0 < (found - expected).square().mean().sqrt() < 0.05 * expected.std()


def test_without_quantization_a_draft_model_is_as_a_target(plain: LlamaModel) -> None:
    draft = load_draft(TARGET, None)
    assert weight_bytes(draft) == weight_bytes(plain)
    assert torch.equal(whole(draft, IDS), whole(plain, IDS))


def test_a_model_of_other_sizes_or_elsewhere_is_not_quantized_of_itself(tmp_path: Path, plain: LlamaModel) -> None:
    assert output_bits(load_draft(save_toy(tmp_path, 150))) == 0
    with kernels("torch"):
        eager = load_draft(TARGET, dtype="bfloat16")
    assert torch.equal(whole(eager, IDS).argmax(-1), whole(plain, IDS).argmax(-1))


def test_a_quantization_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ModelError, match="704 input features in int4"), kernels("native"):
        load_draft(TARGET, "int4")
