"""Tiny checkpoints of every family with random weights, written by transformers itself."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from outrider.engine.models.llama import LlamaModel
from transformers import (
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
    PretrainedConfig,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
)

VOCABULARY = 67
CONTEXT = 512

SHAPE: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 48,
    "intermediate_size": 88,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": CONTEXT,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
_YARN = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 64,
}
_GEMMA_ROPES = {
    "full_attention": {"rope_type": "linear", "rope_theta": 1000000.0, "factor": 8.0},
    "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
}
_GEMMA_LAYERS = ["sliding_attention", "full_attention", "sliding_attention"]
_QWEN_EXPERTS = {
    "moe_intermediate_size": 32,
    "num_experts": 6,
    "num_experts_per_tok": 3,
    "mlp_only_layers": [1],
    "head_dim": 16,
}
_LINEAR = {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}

FAMILIES: dict[str, tuple[type[PretrainedConfig], type[PreTrainedModel], dict[str, Any]]] = {
    "llama 2": (LlamaConfig, LlamaForCausalLM, {"num_key_value_heads": 6}),
    "llama 3": (LlamaConfig, LlamaForCausalLM, {"rope_parameters": _LLAMA3}),
    "llama with linear scaling": (LlamaConfig, LlamaForCausalLM, {"rope_parameters": _LINEAR}),
    "llama with biases": (LlamaConfig, LlamaForCausalLM, {"attention_bias": True, "mlp_bias": True}),
    "smollm": (LlamaConfig, LlamaForCausalLM, {"tie_word_embeddings": True, "num_key_value_heads": 3}),
    "mistral": (MistralConfig, MistralForCausalLM, {"head_dim": 16, "sliding_window": None}),
    "qwen 2": (Qwen2Config, Qwen2ForCausalLM, {"tie_word_embeddings": True}),
    "qwen 3": (Qwen3Config, Qwen3ForCausalLM, {"head_dim": 16}),
    "mistral with a window": (MistralConfig, MistralForCausalLM, {"head_dim": 16, "sliding_window": 40}),
    "qwen 2 with yarn": (Qwen2Config, Qwen2ForCausalLM, {"rope_parameters": _YARN}),
    "gemma 3": (
        Gemma3TextConfig,
        Gemma3ForCausalLM,
        {
            "head_dim": 16,
            "query_pre_attn_scalar": 24,
            "sliding_window": 24,
            "layer_types": _GEMMA_LAYERS,
            "rope_parameters": _GEMMA_ROPES,
        },
    ),
    "mixtral": (MixtralConfig, MixtralForCausalLM, {"num_local_experts": 4}),
    "qwen 3 with experts": (Qwen3MoeConfig, Qwen3MoeForCausalLM, _QWEN_EXPERTS),
    "qwen 3 with experts whose shares sum to one": (
        Qwen3MoeConfig,
        Qwen3MoeForCausalLM,
        _QWEN_EXPERTS | {"norm_topk_prob": True, "mlp_only_layers": []},
    ),
}


@dataclass(frozen=True)
class Pair:
    """transformers' model, and ours of the same directory."""

    directory: Path
    theirs: PreTrainedModel
    ours: LlamaModel


def save(
    family: str, directory: Path, dtype: torch.dtype = torch.float32, layers: int = 3, **changes: Any
) -> PreTrainedModel:
    """Writes a checkpoint of ``family`` and returns transformers' own model of it."""
    config_class, model_class, fields = FAMILIES[family]
    torch.manual_seed(len(family))
    model = model_class(config_class(**SHAPE | {"num_hidden_layers": layers} | fields)).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight) * (0.3 if weight.ndim == 1 else 0.15))
    model.to(dtype).save_pretrained(directory, **changes)
    return model


def tokens(count: int, seed: int = 0) -> torch.Tensor:
    """Random ids: int64 [count]."""
    return torch.randint(VOCABULARY, (count,), generator=torch.Generator().manual_seed(seed))
