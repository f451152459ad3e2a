"""Reads config.json in the older and the newer layout; refuses unsupported values."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from outrider.engine.errors import ModelError
from outrider.engine.models.config import ModelConfig, RopeConfig

_LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "bos_token_id": 1,
    "hidden_act": "silu",
    "hidden_size": 64,
    "intermediate_size": 96,
    "max_position_embeddings": 2048,
    "num_attention_heads": 8,
    "num_hidden_layers": 2,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-5,
    "torch_dtype": "bfloat16",
    "vocab_size": 100,
}
_LLAMA3 = {
    "rope_type": "llama3",
    "factor": 32.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


def load(directory: Path, **changes: Any) -> ModelConfig:
    """The configuration of a Llama with changed fields; fields that are ``...`` are left out."""
    fields = {name: value for name, value in (_LLAMA | changes).items() if value is not ...}
    (directory / "config.json").write_text(json.dumps(fields))
    return ModelConfig.load(directory)


def test_an_older_llama_is_read(tmp_path: Path) -> None:
    config = load(tmp_path, rope_theta=5e5, num_key_value_heads=..., rms_norm_eps=...)
    assert (config.heads, config.kv_heads, config.head_dim, config.context_length) == (8, 8, 8, 2048)
    assert (config.dtype, config.tie, config.norm_eps) == ("bfloat16", False, 1e-6)
    assert config.rope == RopeConfig(5e5)


def test_rope_scaling_is_read_in_either_layout(tmp_path: Path) -> None:
    expected = RopeConfig(5e5, "llama3", 32.0, 1.0, 4.0, 8192)
    assert load(tmp_path, rope_theta=5e5, rope_scaling=_LLAMA3).rope == expected
    assert load(tmp_path, rope_parameters=_LLAMA3 | {"rope_theta": 5e5}).rope == expected
    linear = {"type": "linear", "factor": 2.0}
    assert load(tmp_path, rope_scaling=linear).rope == RopeConfig(10000.0, "linear", 2.0)


@pytest.mark.parametrize("name", ["rope_scaling", "rope_parameters"])
@pytest.mark.parametrize(
    ("inside", "outside", "length"), [(None, 64, 64), (8192, None, 8192), (8192, 64, 64), (None, None, 2048)]
)
@pytest.mark.parametrize("kind", ["llama3", "yarn"])
def test_the_original_length_is_where_transformers_looks_for_it(
    tmp_path: Path, name: str, inside: int | None, outside: int | None, length: int, kind: str
) -> None:
    """transformers' own reading is `standardize_rope_params`."""
    scaling = _LLAMA3 | {"rope_type": kind, "original_max_position_embeddings": inside}
    fields = {name: scaling, "original_max_position_embeddings": outside}
    assert load(tmp_path, **fields).rope.original_length == length


def test_the_newer_name_of_the_dtype_is_read(tmp_path: Path) -> None:
    assert load(tmp_path, torch_dtype=..., dtype="float16").dtype == "float16"


def test_qwens_have_their_own_biases_and_norms(tmp_path: Path) -> None:
    second = load(tmp_path, architectures=["Qwen2ForCausalLM"])
    third = load(tmp_path, architectures=["Qwen3Model"], head_dim=16)
    assert (second.attention_bias, second.output_bias, second.query_key_norm) == (True, False, False)
    assert (third.attention_bias, third.query_key_norm, third.head_dim) == (False, True, 16)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"architectures": ["SmolLM3ForCausalLM"]}, r'architectures is \["SmolLM3ForCausalLM"\]; it must be a list of'),
        ({"architectures": ["BertModel"]}, r'architectures is \["BertModel"\]; it must be a list of'),
        ({"architectures": ...}, "architectures is missing; it must be a list of one of LlamaForCausalLM, "),
        ({"vocab_size": ...}, "vocab_size is missing; it must be a whole number of at least 1"),
        ({"hidden_size": "64"}, 'hidden_size is "64"; it must be a whole number'),
        ({"num_hidden_layers": 0}, "num_hidden_layers is 0; it must be a whole number of at least 1"),
        ({"num_hidden_layers": True}, "num_hidden_layers is true; it must be a whole number"),
        ({"num_key_value_heads": 3}, "num_key_value_heads is 3; it must be a divisor of num_attention_heads"),
        ({"hidden_size": 63}, "hidden_size is 63; it must be a multiple of num_attention_heads"),
        ({"head_dim": 7}, "head_dim is 7; it must be even"),
        ({"rms_norm_eps": -1}, "rms_norm_eps is -1; it must be a number above 0"),
        ({"torch_dtype": "float64"}, 'torch_dtype is "float64"; it must be one of float32, bfloat16, float16'),
        ({"hidden_act": "gelu"}, 'hidden_act is "gelu"; it must be "silu"'),
        ({"tie_word_embeddings": "yes"}, 'tie_word_embeddings is "yes"; it must be true or false'),
        (
            {"rope_scaling": {"type": "su"}},
            'rope_scaling: type is "su"; it must be one of default, linear, llama3, yarn',
        ),
        ({"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}, 'rope_scaling: rope_type is "dynamic"'),
        ({"rope_scaling": {"rope_type": "llama3"}}, "rope_scaling: factor is missing; it must be a number above 0"),
        ({"rope_scaling": "linear"}, 'rope_scaling is "linear"; it must be an object'),
        (
            {"partial_rotary_factor": 1.5},
            "partial_rotary_factor is 1.5; it must be at most 1, and an even share of head_dim",
        ),
        ({"partial_rotary_factor": 0.4}, "an even share of head_dim, which is 8"),
    ],
)
def test_a_wrong_field_is_named_with_its_allowed_values(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        load(tmp_path, **changes)


def test_a_missing_directory_and_a_missing_or_broken_file_are_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"/nowhere is neither a directory nor a GGUF file"):
        ModelConfig.load(Path("/nowhere"))
    with pytest.raises(ModelError, match=r"config.json cannot be read: No such file or directory"):
        ModelConfig.load(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ModelError, match=r"config.json is not JSON: Expecting property name"):
        ModelConfig.load(tmp_path)
    (tmp_path / "config.json").write_bytes(b"\xff\xfe")
    with pytest.raises(ModelError, match=r"config.json is not JSON: 'utf-8' codec"):
        ModelConfig.load(tmp_path)
    (tmp_path / "config.json").write_text("[]")
    with pytest.raises(ModelError, match=r"config.json holds a list, not an object"):
        ModelConfig.load(tmp_path)
