"""Targets whose weights are quantized when they are loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from outrider.engine.errors import ModelError
from outrider.engine.models.llama import LlamaModel
from outrider.kernels.batch import SequenceRows

from tests.engine.models.checkpoints import FAMILIES, SHAPE, save, tokens
from tests.engine.models.runs import PAGE_SIZE, chunks, step, whole
from tests.kernels.choosing import kernels

_LENGTH = 60


@pytest.mark.parametrize(("quantization", "loss"), [("int8", 0.03), ("int4", 0.35)])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_logits_stay_close(quantization: str, loss: float, dtype: str, tmp_path: Path) -> None:
    """The error is below a share of the logits' deviation; four bits lose more of such small random weights."""
    save("llama with biases", tmp_path)
    expected = whole(LlamaModel.load(tmp_path, dtype=dtype), tokens(_LENGTH))
    model = LlamaModel.load(tmp_path, dtype=dtype, quantization=quantization)  # type: ignore[arg-type]
    difference = whole(model, tokens(_LENGTH)) - expected
    assert 0 < difference.square().mean().sqrt() < loss * expected.std()


@pytest.mark.parametrize("quantization", ["int8", "int4"])
def test_strict_bits_do_not_depend_on_how_tokens_come(quantization: str, tmp_path: Path) -> None:
    save("llama 3", tmp_path)
    model = LlamaModel.load(tmp_path, dtype="bfloat16", determinism="strict", quantization=quantization)  # type: ignore[arg-type]
    ids, pool = tokens(_LENGTH), model.new_pool(16, PAGE_SIZE)
    expected = whole(model, ids)
    assert torch.equal(chunks(model, pool, ids, [1, 7, 32, 1, 19], range(16)), expected)
    step(model, pool, [(ids[:50], SequenceRows(50, 0, range(16)))])
    [tree] = step(model, pool, [(ids[[50, 3, 51, 4, 52]], SequenceRows(5, 50, range(16), [-1, 0, 0, 2, 2]))])
    assert torch.equal(tree[[0, 2, 4]], expected[50:53])


def test_a_quantization_that_this_device_does_not_support_is_refused(tmp_path: Path) -> None:
    save("llama 3", tmp_path)
    with pytest.raises(ModelError, match='quantization = "fp8" needs a GPU'):
        LlamaModel.load(tmp_path, quantization="fp8")


_WIDE: dict[str, Any] = {
    "hidden_size": 256,
    "intermediate_size": 384,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
}


def _save_wide(directory: Path) -> None:
    config_class, model_class, fields = FAMILIES["qwen 2"]
    torch.manual_seed(1)
    model_class(config_class(**SHAPE | fields | _WIDE)).to(torch.bfloat16).save_pretrained(directory)


@pytest.mark.parametrize("quantization", ["int8", "int4"])
def test_a_model_quantized_at_load_runs_compiled_and_near_its_numbers(quantization: Any, tmp_path: Path) -> None:
    _save_wide(tmp_path)
    ids = tokens(_LENGTH)
    ours = LlamaModel.load(tmp_path, quantization=quantization, determinism="strict")
    plain = LlamaModel.load(tmp_path)
    with kernels("torch"):
        eager = LlamaModel.load(tmp_path, quantization=quantization)
    assert ours.compiled is not None
    assert eager.compiled is None
    expected = whole(eager, ids)
    off, lost = ((whole(model, ids) - expected).square().mean().sqrt() for model in (ours, plain))
    assert off < lost
