"""Reads what each family states in its own way."""

from __future__ import annotations

from typing import Any

import pytest
from outrider.engine.errors import ModelError
from outrider.engine.models.config import Experts, ModelConfig, RopeConfig
from outrider.engine.models.fields import Fields

_SHAPE: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "max_position_embeddings": 2048,
    "num_attention_heads": 8,
    "num_hidden_layers": 4,
    "num_key_value_heads": 2,
    "vocab_size": 100,
}


def read(architecture: str, **fields: Any) -> ModelConfig:
    """The configuration of an architecture with small sizes and some fields."""
    return ModelConfig.of(Fields("fields", _SHAPE | {"architectures": [architecture]} | fields))


def test_gemma_is_read_without_a_field_of_its_own() -> None:
    config = read("Gemma3ForCausalLM")
    assert (config.head_dim, config.query_scale, config.embedding_scale) == (256, 1 / 16, 8)
    assert (config.activation, config.norm_offset, config.norms_after, config.tie) == ("gelu_tanh", 1, True, True)
    assert (config.rope, config.local_rope) == (RopeConfig(1e6), RopeConfig(1e4))
    assert config.windows == (4096,) * 4


def test_gemmas_windows_follow_a_pattern_or_the_types_of_layers() -> None:
    types = ["full_attention", "sliding_attention", "sliding_attention", "full_attention"]
    assert read("Gemma3ForCausalLM", sliding_window=8, sliding_window_pattern=2).windows == (8, None, 8, None)
    assert read("Gemma3ForCausalLM", sliding_window=8, layer_types=types).windows == (None, 8, 8, None)


def test_positions_of_windows_are_read_in_either_layout() -> None:
    linear = {"rope_type": "linear", "factor": 8.0}
    older = read("Gemma3ForCausalLM", rope_theta=3e6, rope_local_base_freq=2e4, rope_scaling=linear)
    nested = {
        "full_attention": linear | {"rope_theta": 3e6},
        "sliding_attention": {"rope_type": "default", "rope_theta": 2e4},
    }
    newer = read("Gemma3ForCausalLM", rope_parameters=nested, sliding_window_pattern=2)
    assert (older.rope, older.local_rope) == (RopeConfig(3e6, "linear", 8.0), RopeConfig(2e4))
    assert (newer.rope, newer.local_rope) == (older.rope, older.local_rope)
    assert [newer.rope_of(index) for index in range(2)] == [newer.local_rope, newer.rope]


@pytest.mark.parametrize(
    ("architecture", "fields", "windows"),
    [
        ("LlamaForCausalLM", {"sliding_window": 8}, (None,) * 4),
        ("MistralForCausalLM", {}, (4096,) * 4),
        ("MistralForCausalLM", {"sliding_window": None}, (None,) * 4),
        ("MixtralForCausalLM", {}, (None,) * 4),
        ("MixtralForCausalLM", {"sliding_window": 8}, (8,) * 4),
        ("Qwen2ForCausalLM", {"sliding_window": 8}, (None,) * 4),
        ("Qwen2ForCausalLM", {"sliding_window": 8, "use_sliding_window": True}, (None,) * 4),
        (
            "Qwen3ForCausalLM",
            {"sliding_window": 8, "use_sliding_window": True, "max_window_layers": 3},
            (None, None, None, 8),
        ),
        ("Qwen3MoeForCausalLM", {"sliding_window": 8, "use_sliding_window": True}, (8,) * 4),
    ],
)
def test_each_family_says_which_layers_slide(
    architecture: str, fields: dict[str, Any], windows: tuple[int | None, ...]
) -> None:
    assert read(architecture, **fields).windows == windows


def test_experts_stand_where_the_family_puts_them() -> None:
    assert read("MixtralForCausalLM", num_local_experts=4).experts == Experts(4, 2, 96, True, (True,) * 4)
    fields = {"num_experts": 6, "num_experts_per_tok": 3, "moe_intermediate_size": 32, "decoder_sparse_step": 2}
    config = read("Qwen3MoeForCausalLM", norm_topk_prob=True, mlp_only_layers=[3], **fields)
    assert config.experts == Experts(6, 3, 32, True, (False, True, False, False))
    assert [config.has_experts(index) for index in range(4)] == [False, True, False, False]
    assert read("Qwen3MoeForCausalLM", mlp_only_layers=[1, 3], **fields).experts is None


def test_only_the_experts_that_a_row_goes_through_count_as_its_weights() -> None:
    fields = {"num_experts": 6, "num_experts_per_tok": 3, "moe_intermediate_size": 40, "head_dim": 8}
    attention, experts, dense = 2 * 64 * (64 + 16), 3 * 64 * 3 * 40, 3 * 64 * 96
    assert read("Qwen3MoeForCausalLM", **fields).layer_weights == attention + experts
    mixed = read("Qwen3MoeForCausalLM", mlp_only_layers=[0], **fields)
    assert mixed.layer_weights * 4 == 4 * attention + 3 * experts + dense


def test_yarn_is_read_with_what_follows_from_its_factor() -> None:
    scaling = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 512}
    rope = read("Qwen2ForCausalLM", rope_scaling=scaling).rope
    assert (rope.kind, rope.factor, rope.original_length) == ("yarn", 4.0, 512)
    assert rope.attention_factor == pytest.approx(1.1386294)
    weighed = read("Qwen2ForCausalLM", rope_scaling=scaling | {"mscale": 1.0, "mscale_all_dim": 0.5}).rope
    assert weighed.attention_factor == pytest.approx(1.1386294 / 1.0693147)
    stated = read("Qwen2ForCausalLM", rope_scaling=scaling | {"attention_factor": 1.5, "truncate": False}).rope
    assert (stated.attention_factor, stated.truncate) == (1.5, False)


def test_a_part_of_a_head_may_be_turned() -> None:
    assert read("LlamaForCausalLM", partial_rotary_factor=0.5).rope.rotated(8) == 4
    newer = {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.25}
    assert read("LlamaForCausalLM", rope_parameters=newer).rope == RopeConfig(1e4, share=0.25)


@pytest.mark.parametrize(
    ("architecture", "fields", "message"),
    [
        ("Gemma3ForCausalLM", {"hidden_activation": "silu"}, 'hidden_activation is "silu"; it must be "gelu_pytorch_'),
        ("Gemma3ForCausalLM", {"final_logit_softcapping": 30.0}, "final_logit_softcapping is 30.0; it must be absent"),
        ("Gemma3ForCausalLM", {"use_bidirectional_attention": True}, "use_bidirectional_attention is true; it must be"),
        ("Gemma3ForCausalLM", {"layer_types": ["full_attention"]}, "it must be a list of 4 of full_attention, sliding"),
        ("Gemma3ForCausalLM", {"layer_types": [[]] * 4}, "it must be a list of 4 of full_attention, sliding"),
        ("Qwen2ForCausalLM", {"use_sliding_window": True, "max_window_layers": -1}, "max_window_layers is -1; it must"),
        ("MixtralForCausalLM", {"num_experts_per_tok": 9}, "num_experts_per_tok is 9; it must be at most the number"),
        ("Qwen3MoeForCausalLM", {"mlp_only_layers": [0.5]}, r"mlp_only_layers is \[0.5\]; it must be a list of whole"),
        ("Qwen3MoeForCausalLM", {"num_experts": 0}, "num_experts is 0; it must be a whole number of at least 1"),
    ],
)
def test_a_wrong_field_is_named_with_its_allowed_values(
    architecture: str, fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(ModelError, match=message):
        read(architecture, **fields)
