"""Weights of every format against their dequantized numbers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from outrider.engine.errors import ModelError
from outrider.engine.models.checkpoint import Checkpoint
from outrider.engine.models.fields import Fields
from outrider.engine.models.quantized import QuantizedCheckpoint
from outrider.native.quantized import dequantized
from safetensors.torch import save_file
from torch import Tensor

from tests.engine.models.quantized.writers import FORMATS, Format, scheme, words

NAMES = [form.name for form in FORMATS]
SHAPE = (80, 128)


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def form_of(name: str) -> Format:
    return FORMATS[NAMES.index(name)]


def opened(directory: Path, config: dict[str, Any], **tensors: Tensor) -> QuantizedCheckpoint:
    """A directory with the tensors of a module ``m``."""
    stored = {f"m.{name}": tensor.contiguous() for name, tensor in tensors.items()}
    save_file(stored, directory / "model.safetensors")
    return QuantizedCheckpoint(Checkpoint(directory), Fields("config.json: quantization_config", config))


def written(directory: Path, name: str, shape: tuple[int, int] = SHAPE, **changes: Tensor) -> QuantizedCheckpoint:
    """A directory with a random module ``m`` in a format, with other tensors in place of some."""
    form = form_of(name)
    return opened(directory, form.config, **form.tensors(random(*shape))[0] | changes)


def refused(message: str, checkpoint: QuantizedCheckpoint, shape: tuple[int, int] = SHAPE) -> None:
    with pytest.raises(ModelError, match=message) as raised:
        checkpoint.take("m.weight", shape)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("name", NAMES)
def test_a_weight_is_what_its_codes_stand_for(name: str, tmp_path: Path) -> None:
    form, weight = form_of(name), random(*SHAPE)
    tensors, numbers = form.tensors(weight)
    checkpoint = opened(tmp_path, form.config, **tensors)
    taken = checkpoint.take("m.weight", SHAPE)
    checkpoint.finish()
    assert torch.equal(taken if isinstance(taken, Tensor) else dequantized(taken, torch.float32), numbers)
    assert 0 < (numbers - weight).abs().max() < 0.5


@pytest.mark.parametrize("name", NAMES)
def test_quants_of_some_rows_are_those_of_the_whole(name: str, tmp_path: Path) -> None:
    taken = written(tmp_path, name).take("m.weight", SHAPE)
    assert not isinstance(taken, Tensor)
    rows = torch.tensor([70, 3, 3, 41])
    some, whole = taken.quants(rows), taken.quants(torch.arange(SHAPE[0]))
    assert torch.equal(some.quants, whole.quants[rows])
    assert torch.equal(some.scales, whole.scales[rows])
    assert (some.minima is None) == (whole.minima is None) == (not taken.format.has_minima)
    assert some.minima is None or whole.minima is None or torch.equal(some.minima, whole.minima[rows])


@pytest.mark.parametrize("name", ["awq", "packed", "integers", "fp8"])
def test_a_module_without_codes_keeps_its_weight(name: str, tmp_path: Path) -> None:
    weight = random(*SHAPE).bfloat16()
    checkpoint = opened(tmp_path, form_of(name).config, weight=weight)
    taken = checkpoint.take("m.weight", SHAPE)
    assert isinstance(taken, Tensor)
    assert torch.equal(taken, weight)


def test_biases_of_zeros_that_some_writers_add_are_no_trouble(tmp_path: Path) -> None:
    checkpoint = written(tmp_path, "gptq", bias=torch.zeros(80))
    checkpoint.take("m.weight", SHAPE)
    checkpoint.finish()


def test_a_bias_that_is_not_zero_must_have_a_use(tmp_path: Path) -> None:
    checkpoint = written(tmp_path, "gptq", bias=torch.ones(80))
    checkpoint.take("m.weight", SHAPE)
    with pytest.raises(ModelError, match=r"m.bias"):
        checkpoint.finish()


def test_a_symmetric_zero_point_may_be_stored_with_or_without_the_one_less(tmp_path: Path) -> None:
    expected = dequantized(written(tmp_path, "gptq").take("m.weight", SHAPE), torch.float32)  # type: ignore[arg-type]
    stored = words(torch.full((4, 80), 8), 4)
    taken = written(tmp_path, "gptq", qzeros=stored).take("m.weight", SHAPE)
    assert not isinstance(taken, Tensor)
    assert torch.equal(dequantized(taken, torch.float32), expected)


def test_symmetric_codes_with_several_zero_points_are_refused(tmp_path: Path) -> None:
    several = words(torch.arange(320).view(4, 80) % 16, 4)
    refused(
        "m.qzeros has several zero points; where sym is true all must be 8", written(tmp_path, "gptq", qzeros=several)
    )


def test_groups_in_the_order_of_activations_are_refused(tmp_path: Path) -> None:
    order = torch.arange(128, dtype=torch.int32).flip(0) // 32
    refused(r"m.g_idx assigns input features to groups in the order of", written(tmp_path, "gptq", g_idx=order))


def test_a_shape_that_words_cannot_hold_is_refused(tmp_path: Path) -> None:
    refused("needs a multiple of 8 output features", written(tmp_path, "awq", (80, 128)), (79, 128))
    refused("needs multiples of 8 of both, and of 32 input features", written(tmp_path, "gptq"), (80, 120))
    refused("must be a multiple of 32 and of their groups of 32", written(tmp_path, "packed"), (80, 120))


@pytest.mark.parametrize(
    ("name", "tensor", "changed", "message"),
    [
        ("awq", "qweight", torch.zeros(128, 9, dtype=torch.int32), r"has shape \[128, 9\]; by .* must be \[128, 10\]"),
        ("awq", "scales", torch.zeros(4, 80, dtype=torch.float64), "has dtype F64; one of F32, BF16, F16 is allowed"),
        ("gptq", "qzeros", torch.zeros(4, 10), "has dtype F32; one of I32 is allowed"),
        ("packed", "weight_shape", torch.tensor([80, 127]), r"is \[80, 127\]; by config.json it must be \[80, 128\]"),
        ("integers", "weight", torch.zeros(80, 128), "has dtype F32; one of I8 is allowed"),
        ("fp8", "weight_scale_inv", torch.zeros(1, 4), r"has shape \[1, 4\]; by config.json it must be \[2, 4\]"),
    ],
)
def test_tensors_that_do_not_fit_are_refused(
    name: str, tensor: str, changed: Tensor, message: str, tmp_path: Path
) -> None:
    refused(message, written(tmp_path, name, **{tensor: changed}))


def test_modules_may_be_quantized_in_different_ways(tmp_path: Path) -> None:
    config = scheme("pack-quantized", num_bits=4, strategy="group", group_size=32)
    eight = scheme("pack-quantized", num_bits=8, strategy="channel")["config_groups"]["group_0"]
    config["config_groups"]["group_1"] = eight | {"targets": ["re:.*m$"]}
    form = replace(form_of("packed in 8 bits"), group=-1)
    tensors, numbers = form.tensors(random(*SHAPE))
    taken = opened(tmp_path, config, **tensors).take("m.weight", SHAPE)
    assert not isinstance(taken, Tensor)
    assert torch.equal(dequantized(taken, torch.float32), numbers)


def test_a_quantized_module_that_no_group_names_is_refused(tmp_path: Path) -> None:
    config = scheme("pack-quantized", num_bits=4, strategy="group", group_size=32)
    config["config_groups"]["group_0"]["targets"] = ["re:.*up_proj"]
    refused(
        "no target of config.json's config_groups names it",
        opened(tmp_path, config, **form_of("packed").tensors(random(*SHAPE))[0]),
    )
