"""Invalid files are refused with one sentence."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest
import torch
from outrider.engine.models.checkpoint import Checkpoint
from outrider.engine.models.llama import LlamaModel, ModelError
from safetensors.torch import load_file, save_file

from tests.engine.models.checkpoints import save, tokens
from tests.engine.models.runs import whole


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A sound checkpoint, to be spoilt."""
    save("qwen 2", tmp_path)
    return tmp_path


@pytest.fixture
def sharded(tmp_path: Path) -> Path:
    """A sound checkpoint in shards."""
    save("qwen 2", tmp_path, max_shard_size="40KB")
    return tmp_path


def refused(directory: Path, message: str, **options: str) -> None:
    with pytest.raises(ModelError, match=message) as raised:
        LlamaModel.load(directory, **options)  # type: ignore[arg-type]
    assert "\n" not in str(raised.value)


def rewrite(directory: Path, **changes: torch.Tensor | None) -> None:
    """Saves the tensors with changes; None drops a tensor, double underscores stand for dots."""
    tensors = load_file(directory / "model.safetensors")
    for name, tensor in changes.items():
        tensors.pop(name.replace("__", "."), None)
        if tensor is not None:
            tensors[name.replace("__", ".")] = tensor
    save_file(tensors, directory / "model.safetensors")


def test_a_truncated_file(directory: Path) -> None:
    path = directory / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    refused(directory, r"model.safetensors is not a whole safetensors file: ")


def test_a_file_that_is_no_safetensors(directory: Path) -> None:
    (directory / "model.safetensors").write_bytes(b"version https://git-lfs.github.com/spec/v1")
    refused(directory, r"model.safetensors is not a whole safetensors file: ")


def test_an_empty_file(directory: Path) -> None:
    (directory / "model.safetensors").write_bytes(b"")
    refused(directory, r"model.safetensors is not a whole safetensors file: ")


def test_pickles_alone(directory: Path) -> None:
    (directory / "model.safetensors").unlink()
    (directory / "pytorch_model.bin").write_bytes(pickle.dumps({}))
    refused(directory, r"has neither model.safetensors nor .*; pytorch_model.bin is a pickle, which is never loaded")


def test_no_tensors_at_all(directory: Path) -> None:
    (directory / "model.safetensors").unlink()
    refused(directory, r"has neither model.safetensors nor model.safetensors.index.json$")


def test_a_missing_shard(sharded: Path) -> None:
    shard = sorted(sharded.glob("model-*.safetensors"))[1]
    shard.unlink()
    refused(sharded, f"{shard.name} is missing, which model.safetensors.index.json names")


def test_a_tensor_that_is_not_in_the_shard_that_the_index_names(sharded: Path) -> None:
    index = json.loads((sharded / "model.safetensors.index.json").read_text())
    index["weight_map"]["model.norm.weight"] = index["weight_map"]["model.embed_tokens.weight"]
    (sharded / "model.safetensors.index.json").write_text(json.dumps(index))
    refused(sharded, "has no tensor model.norm.weight, which model.safetensors.index.json places there")


@pytest.mark.parametrize("file", ["../elsewhere.safetensors", "/etc/passwd"])
def test_an_index_that_leads_out_of_the_directory(sharded: Path, file: str) -> None:
    index = json.loads((sharded / "model.safetensors.index.json").read_text())
    index["weight_map"]["model.norm.weight"] = file
    (sharded / "model.safetensors.index.json").write_text(json.dumps(index))
    refused(sharded, f'model.norm.weight is "{file}"; it must be a file name without a folder')


def test_a_missing_tensor(directory: Path) -> None:
    rewrite(directory, model__layers__1__mlp__up_proj__weight=None)
    refused(directory, "has no tensor model.layers.1.mlp.up_proj.weight, which its config.json asks for")


def test_a_tensor_of_the_wrong_shape(directory: Path) -> None:
    rewrite(directory, model__norm__weight=torch.ones(49))
    refused(directory, r"model.norm.weight has shape \[49\]; by config.json it must be \[48\]")


def test_a_tensor_of_a_dtype_that_is_not_supported(directory: Path) -> None:
    rewrite(directory, model__norm__weight=torch.ones(48, dtype=torch.float64))
    refused(directory, "model.norm.weight has dtype F64; one of F32, BF16, F16 is allowed")


def test_a_tensor_that_the_configuration_has_no_use_for(directory: Path) -> None:
    rewrite(directory, model__layers__3__mlp__up_proj__weight=torch.ones(88, 48))
    refused(directory, "has a tensor model.layers.3.mlp.up_proj.weight that its config.json has no use for")


def test_leftovers_that_older_checkpoints_hold_are_no_trouble(directory: Path) -> None:
    embedding = load_file(directory / "model.safetensors")["model.embed_tokens.weight"]
    rewrite(
        directory,
        model__layers__0__self_attn__rotary_emb__inv_freq=torch.ones(4),
        lm_head__weight=embedding.clone(),
    )
    LlamaModel.load(directory)


def test_scales_of_keys_and_values_have_no_effect(directory: Path) -> None:
    ids = tokens(9)
    expected = whole(LlamaModel.load(directory), ids)
    one = torch.tensor(2.0)
    rewrite(
        directory,
        model__layers__0__self_attn__k_scale=one.clone(),
        model__layers__0__self_attn__v_scale=one.clone(),
        model__layers__1__self_attn__attn__q_scale=one.clone(),
        model__layers__1__self_attn__k_proj__k_scale=one.clone(),
        model__layers__1__self_attn__v_proj__output_scale=one.clone(),
        model__layers__1__self_attn__k_zero_point=one.clone(),
        model__layers__2__self_attn__kv_scale=one.clone(),
    )
    assert torch.equal(whole(LlamaModel.load(directory), ids), expected)


def test_an_untied_output_layer_that_is_missing(directory: Path) -> None:
    config = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps(config | {"tie_word_embeddings": False}))
    refused(directory, "has no tensor lm_head.weight, which its config.json asks for")


def test_options_that_are_not_supported(directory: Path) -> None:
    refused(directory, "dtype is 'int8'; it must be auto or one of float32, bfloat16, float16", dtype="int8")
    refused(directory, "determinism is 'some'; it must be strict or fast", determinism="some")
    refused(directory, "device is 'abacus', which torch cannot use here: ", device="abacus")


def is_mapped(path: Path) -> bool:
    return str(path) in Path("/proc/self/maps").read_text()


def test_what_was_read_of_a_file_does_not_stay_in_memory(directory: Path) -> None:
    path, name, shape = directory / "model.safetensors", "model.norm.weight", (48,)
    checkpoint = Checkpoint(directory, mapped=0)
    part = checkpoint.take_part(name, shape, slice(2))
    assert is_mapped(path)
    assert len(part) == 2
    del part
    assert not is_mapped(path)
    assert checkpoint.take(name, shape).shape == shape


def test_a_loaded_model_has_no_file_open(directory: Path) -> None:
    model = LlamaModel.load(directory)
    assert not is_mapped(directory / "model.safetensors")
    assert model.compiled is None or model.compiled.weights
