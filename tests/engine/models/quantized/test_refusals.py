"""What a ``quantization_config`` asks for and cannot be honoured is refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from outrider.engine.errors import ModelError
from outrider.engine.models.checkpoint import Checkpoint
from outrider.engine.models.fields import Fields
from outrider.engine.models.quantized import QuantizedCheckpoint
from safetensors.torch import save_file

from tests.engine.models.quantized.writers import scheme

AWQ: dict[str, Any] = {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True, "version": "gemm"}
GPTQ: dict[str, Any] = {"quant_method": "gptq", "bits": 4, "group_size": 128}
FP8: dict[str, Any] = {"quant_method": "fp8", "weight_block_size": [128, 128]}
PACKED: dict[str, Any] = scheme("pack-quantized", num_bits=4, strategy="group", group_size=128)


def changed(config: dict[str, Any], weights: dict[str, Any] | None = None, **group: Any) -> dict[str, Any]:
    """A compressed-tensors configuration with changes of its group and of the group's weights."""
    own = config["config_groups"]["group_0"]
    return config | {"config_groups": {"group_0": own | group | {"weights": own["weights"] | (weights or {})}}}


@pytest.fixture
def source(tmp_path: Path) -> Checkpoint:
    """A checkpoint that nothing is read from."""
    save_file({"m": torch.zeros(1)}, tmp_path / "model.safetensors")
    return Checkpoint(tmp_path)


@pytest.mark.parametrize(
    "config",
    [AWQ, GPTQ, FP8, PACKED, changed(PACKED, {"actorder": "weight"}), PACKED | {"kv_cache_scheme": {"num_bits": 8}}],
)
def test_what_the_others_are_changed_from_is_supported(source: Checkpoint, config: dict[str, Any]) -> None:
    QuantizedCheckpoint(source, Fields("config.json", config)).finish(["m"])


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"quant_method": "bitsandbytes"}, 'quant_method is "bitsandbytes"; it must be "awq", "gptq", "compressed-te'),
        ({}, 'quant_method is missing; it must be "awq", "gptq", "compressed-tensors" or "fp8"'),
        (AWQ | {"version": "gemv"}, 'version is "gemv"; it must be "gemm"'),
        (AWQ | {"bits": 3}, "bits is 3; it must be 4"),
        (AWQ | {"bits": True}, "bits is true; it must be 4"),
        (AWQ | {"zero_point": False}, "zero_point is false; it must be true"),
        (AWQ | {"group_size": 16}, "group_size is 16; it must be a multiple of 32, or -1 for all input features"),
        (GPTQ | {"bits": 2}, "bits is 2; it must be 4 or 8"),
        (GPTQ | {"group_size": None}, "group_size is missing; it must be a multiple of 32"),
        (GPTQ | {"checkpoint_format": "marlin"}, 'checkpoint_format is "marlin"; it must be "gptq" or "gptq_v2"'),
        (GPTQ | {"is_marlin_format": True}, "is_marlin_format is true; it must be false"),
        (GPTQ | {"pack_dtype": "int16"}, 'pack_dtype is "int16"; it must be "int32"'),
        (GPTQ | {"dynamic": {"+:.*up": {"bits": 8}}}, "dynamic is .*; it must be absent, or have keys that begin"),
        (GPTQ | {"desc_act": 1}, "desc_act is 1; it must be true or false"),
        (FP8 | {"activation_scheme": "static"}, 'activation_scheme is "static"; it must be "dynamic"'),
        (
            FP8 | {"weight_block_size": None},
            "weight_block_size is missing; it must be a list of two whole numbers, the second a multiple",
        ),
        (FP8 | {"fmt": "e5m2"}, 'fmt is "e5m2"; it must be "e4m3"'),
        (FP8 | {"scale_fmt": "ue8m0"}, 'scale_fmt is "ue8m0"; it must be "float"'),
        (
            PACKED | {"format": "nvfp4-pack-quantized"},
            'format is "nvfp4-pack-quantized"; it must be "pack-quantized", ',
        ),
        (PACKED | {"format": "marlin-24"}, 'format is "marlin-24"; it must be "pack-quantized", '),
        (PACKED | {"transform_config": {"config_groups": {}}}, "transform_config is .*; it must be absent"),
        (PACKED | {"sparsity_config": {"format": "sparse-24-bitmask"}}, 'format is .*; it must be "dense"'),
        (PACKED | {"config_groups": {}}, "config_groups is {}; it must be an object of at least one group"),
        (PACKED | {"config_groups": {"a": 1}}, "config_groups: a is 1; it must be an object"),
        (changed(PACKED, {"num_bits": 3}), "num_bits is 3; it must be 4 or 8"),
        (changed(PACKED, {"type": "float"}), 'type is "float"; it must be "int"'),
        (changed(PACKED, {"actorder": "group"}), 'actorder is "group"; it must be false, "weight" or "static"'),
        (changed(PACKED, {"strategy": "tensor"}), 'strategy is "tensor"; it must be "group" or "channel"'),
        (changed(PACKED, {"dynamic": True}), "dynamic is true; it must be false"),
        (changed(PACKED, targets="Linear"), 'targets is "Linear"; it must be a list'),
        (changed(PACKED, targets=["re:("]), r"targets is \[.*\]; it must be a list"),
        (changed(PACKED, input_activations={"dynamic": False}), "input_activations: dynamic is false; it must be true"),
        (changed(PACKED, output_activations={"num_bits": 8}), "output_activations is .*; it must be absent"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(source: Checkpoint, config: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message) as raised:
        QuantizedCheckpoint(source, Fields("config.json", config))
    assert "\n" not in str(raised.value)
