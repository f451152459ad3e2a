"""A toy model of real architecture: small, with clear choices of tokens, so that answers can be compared."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenizers import Tokenizer
from tokenizers.models import WordLevel

if TYPE_CHECKING:
    import torch


def save_toy(directory: Path, vocabulary: int, seed: int = 0, context: int = 256, kv_heads: int = 1) -> Path:
    """Saves a two-layer Llama with random weights and clear choices of tokens, and a tokenizer of short words."""
    import torch  # tests/conftest.py imports this module before it sets what torch reads
    from safetensors.torch import save_file

    directory.mkdir(parents=True, exist_ok=True)
    hidden, heads, inner, layers = 32, 2, 48, 2
    config: dict[str, Any] = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": vocabulary,
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "max_position_embeddings": context,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
        "torch_dtype": "float32",
    }
    (directory / "config.json").write_text(json.dumps(config))
    random = torch.Generator().manual_seed(seed)
    size = hidden // heads

    def weight(rows: int, columns: int) -> torch.Tensor:
        return torch.randn(rows, columns, generator=random) * 1.5 * columns**-0.5

    tensors = {
        "model.embed_tokens.weight": torch.randn(vocabulary, hidden, generator=random),
        "model.norm.weight": torch.ones(hidden),
        "lm_head.weight": weight(vocabulary, hidden),
    }
    for layer in range(layers):
        name = f"model.layers.{layer}"
        tensors |= {
            f"{name}.input_layernorm.weight": torch.ones(hidden),
            f"{name}.post_attention_layernorm.weight": torch.ones(hidden),
            f"{name}.self_attn.q_proj.weight": weight(hidden, hidden),
            f"{name}.self_attn.k_proj.weight": weight(kv_heads * size, hidden),
            f"{name}.self_attn.v_proj.weight": weight(kv_heads * size, hidden),
            f"{name}.self_attn.o_proj.weight": weight(hidden, hidden),
            f"{name}.mlp.gate_proj.weight": weight(inner, hidden),
            f"{name}.mlp.up_proj.weight": weight(inner, hidden),
            f"{name}.mlp.down_proj.weight": weight(hidden, inner),
        }
    save_file(tensors, directory / "model.safetensors")
    words = {f"<{index}>": index for index in range(vocabulary)}
    Tokenizer(WordLevel(words, unk_token="<0>")).save(str(directory / "tokenizer.json"))
    return directory
