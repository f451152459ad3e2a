"""Names of tensors: GGUF's, and those of the Hugging Face model that a file was converted from.

GGUF's names are those of ggml's docs/gguf.md; the names of both sides are data, not code.
"""

from __future__ import annotations

import re

ARCHITECTURES = ("llama", "qwen2", "qwen3", "gemma3")
"""Values of ``general.architecture`` that can be loaded."""
_BLOCK = re.compile(r"blk\.(0|[1-9][0-9]{0,5})\.([a-z_]+)\.(weight|bias)")
_OUTSIDE = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_INSIDE = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_GEMMA = {
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}


def hugging_face_name(architecture: str, name: str) -> str | None:
    """Hugging Face's name of a tensor of a file; None for a tensor that such a model does not have."""
    if (outside := _OUTSIDE.get(name)) is not None:
        return outside
    matched = _BLOCK.fullmatch(name)
    if matched is None:
        return None
    layer, part, kind = matched.groups()
    inside = {**_INSIDE, **_GEMMA} if architecture == "gemma3" else _INSIDE
    return f"model.layers.{layer}.{inside[part]}.{kind}" if part in inside else None
