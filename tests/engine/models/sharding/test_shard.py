"""Shares of a checkpoint, and the models that have none."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from outrider.engine import LLM
from outrider.engine.errors import ModelError, SettingsError
from outrider.engine.models.checkpoint import Checkpoint
from outrider.engine.models.config import ModelConfig
from outrider.engine.models.fingerprint import page_fingerprint
from outrider.engine.models.llama import LlamaModel, open_weights
from outrider.engine.models.sharding.group import Group
from outrider.engine.models.sharding.shard import Shard, shard_config
from safetensors.torch import load_file

from tests.engine.models.checkpoints import save
from tests.engine.models.gguf.files import write_model

_COLUMNS, _ROWS = ("o_proj.weight", "down_proj.weight"), ("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj")
_LAYER = "model.layers.1"


class Watched(Checkpoint):
    """Notes which tensors are read whole."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.whole: list[str] = []

    def stored(self, name: str) -> torch.Tensor:
        """See `Checkpoint`."""
        self.whole.append(name)
        return super().stored(name)


@pytest.fixture(scope="module")
def biased(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("models") / "biased"
    save("llama with biases", directory)
    return directory


def taken(directory: Path, rank: int, names: Mapping[str, torch.Tensor]) -> tuple[dict[str, torch.Tensor], Watched]:
    """Each tensor's share, asked for as a loader of half the heads and columns does."""
    watched = Watched(directory)
    shard, tensors = Shard(watched, rank, 2), {}
    for name, whole in names.items():
        shape = list(whole.shape)
        axis = 1 if name.endswith(_COLUMNS) else 0
        shape[axis] //= 2 if name.endswith(_COLUMNS) or any(part in name for part in _ROWS) else 1
        tensors[name] = shard.take(name, shape)
    shard.finish()
    return tensors, watched


def test_shares_are_the_whole_and_no_rank_reads_more_than_its_own(biased: Path) -> None:
    whole = load_file(biased / "model.safetensors")
    (first, watched), (second, _) = (taken(biased, rank, whole) for rank in range(2))
    for name, tensor in whole.items():
        if name.endswith(_COLUMNS):
            joined = torch.cat([first[name], second[name]], 1)
        elif any(part in name for part in _ROWS) or name == "lm_head.weight":
            joined = torch.cat([first[name], second[name]])
        elif name.endswith(("o_proj.bias", "down_proj.bias")):
            joined = first[name] + second[name]
        else:
            joined = first[name]
            assert torch.equal(joined, second[name])
        assert torch.equal(joined, tensor)
    shared = ("_proj.weight", "lm_head.weight")
    assert not [name for name in watched.whole if name.endswith(shared)]


def test_a_share_of_another_shape_than_the_configuration_s_is_refused(biased: Path) -> None:
    name = f"{_LAYER}.self_attn.o_proj.weight"
    with pytest.raises(ModelError, match=re.escape("has shape [48, 48]; by config.json it must be [48, 96]")):
        Shard(Checkpoint(biased), 0, 2).take(name, (48, 48))


@pytest.mark.parametrize(
    ("family", "ranks", "why"),
    [
        ("qwen 2", 3, "tensor_parallel = 3 must divide the model's num_key_value_heads, which is 2"),
        ("qwen 2", 4, "tensor_parallel = 4 must divide the model's num_attention_heads, which is 6"),
        ("mixtral", 2, "tensor_parallel must be 1 for models with experts"),
    ],
)
def test_models_that_cannot_be_shared_out_say_why(family: str, ranks: int, why: str, tmp_path: Path) -> None:
    save(family, tmp_path)
    with pytest.raises(ModelError, match=re.escape(why)):
        shard_config(ModelConfig.load(tmp_path), ranks)


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"tensor_parallel": 0}, "tensor_parallel must be at least 1, not 0"),
        ({"tensor_parallel": 2, "quantization": "int8"}, "tensor_parallel must be 1 for quantization = int8"),
        ({"tensor_parallel": 2, "device": "meta"}, "device is 'meta', which must be cpu or cuda with tensor_parallel"),
        ({"tensor_parallel": 2, "device": "cuda"}, f"needs 2 GPUs, and torch sees {torch.cuda.device_count()}"),
    ],
)
def test_settings_that_cannot_be_are_refused_before_a_rank_starts(
    settings: dict[str, Any], why: str, biased: Path
) -> None:
    if settings.get("device") == "cuda" and torch.cuda.device_count() > 1:
        pytest.skip("there are two GPUs")
    with pytest.raises(SettingsError, match=re.escape(why)):
        LLM(biased, **settings)


def test_weights_that_are_not_numbers_in_safetensors_are_refused(tmp_path: Path) -> None:
    file = write_model(tmp_path / "words.gguf", save("qwen 2", tmp_path / "numbers"))
    with pytest.raises(ModelError, match="tensor_parallel must be 1 for GGUF files"):
        Shard(open_weights(file), 0, 2)
    config = tmp_path / "numbers" / "config.json"
    quantized = {"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}
    config.write_text(json.dumps(json.loads(config.read_text()) | quantized))
    with pytest.raises(ModelError, match="tensor_parallel must be 1 for quantized weights"):
        Shard(open_weights(tmp_path / "numbers"), 0, 2)


def test_pages_of_other_numbers_of_ranks_have_other_fingerprints(biased: Path) -> None:
    model = LlamaModel.load(biased)
    pool = model.new_pool(2, 8)
    one = page_fingerprint(biased, model, pool, quantization="none", determinism="strict")
    model.group = Group(0, 2, fixed=True)
    assert one != page_fingerprint(biased, model, pool, quantization="none", determinism="strict")
