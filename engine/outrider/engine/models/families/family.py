"""What an architecture's name alone says about a decoder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from outrider.engine.models.families.experts import ReadExperts, mixtral_experts, no_experts, qwen_experts
from outrider.engine.models.families.windows import (
    ReadWindows,
    gemma_windows,
    mistral_windows,
    mixtral_windows,
    no_windows,
    qwen_moe_windows,
    qwen_windows,
)
from outrider.engine.models.fields import Fields

Activation = Literal["silu", "gelu_tanh"]


@dataclass(frozen=True, slots=True)
class Family:
    """Facts about an architecture, and readers of what its configuration states in its own way.

    Attributes:
        query_key_norm: whether each head's queries and keys are normed.
        qkv_bias: whether queries, keys and values always have a bias, and the attention's output never.
        feed_forward_bias: whether ``mlp_bias`` is read.
        head_dim: if the configuration states none; None is hidden_size / num_attention_heads.
        norm_eps: if the configuration states none.
        tie: whether the output layer is the embedding if the configuration does not say.
        theta: base of rotary positions if the configuration states none.
        local_theta: the same of layers with a window; None where those have the positions of the others.
        gemma: whether norms have weights of 1 + w and stand behind both blocks too, embeddings are scaled, and the
            activation is gelu.
        windows: reads sliding windows.
        experts: reads experts.
    """

    query_key_norm: bool = False
    qkv_bias: bool = False
    feed_forward_bias: bool = False
    head_dim: int | None = None
    norm_eps: float = 1e-6
    tie: bool = False
    theta: float = 10000.0
    local_theta: float | None = None
    gemma: bool = False
    windows: ReadWindows = no_windows
    experts: ReadExperts = no_experts


FAMILIES = {
    "LlamaForCausalLM": Family(feed_forward_bias=True),
    "MistralForCausalLM": Family(windows=mistral_windows),
    "MixtralForCausalLM": Family(norm_eps=1e-5, theta=1e6, windows=mixtral_windows, experts=mixtral_experts),
    "Qwen2ForCausalLM": Family(qkv_bias=True, windows=qwen_windows),
    "Qwen3ForCausalLM": Family(query_key_norm=True, head_dim=128, windows=qwen_windows),
    "Qwen3MoeForCausalLM": Family(query_key_norm=True, windows=qwen_moe_windows, experts=qwen_experts),
    "Gemma3ForCausalLM": Family(
        query_key_norm=True, head_dim=256, tie=True, theta=1e6, local_theta=1e4, gemma=True, windows=gemma_windows
    ),
}
"""By architecture, as config.json names it."""


def architecture(fields: Fields) -> str:
    """The name of the architecture, one of `FAMILIES`; `ModelError` otherwise.

    Embedding models without an output layer are also called by their decoder: ``Qwen3Model``.
    """
    named = fields.values.get("architectures")
    if isinstance(named, list) and len(named) == 1 and isinstance(named[0], str):
        name = f"{named[0].removesuffix('Model')}ForCausalLM" if named[0].endswith("Model") else named[0]
        if name in FAMILIES:
            return name
    raise fields.wrong("architectures", "a list of one of " + ", ".join(FAMILIES))


def activation(fields: Fields, family: Family) -> Activation:
    """The activation of the feed-forward block; `ModelError` for one that the family does not have."""
    name, allowed = ("hidden_activation", "gelu_pytorch_tanh") if family.gemma else ("hidden_act", "silu")
    if fields.text(name, allowed) != allowed:
        raise fields.wrong(name, f'"{allowed}"')
    return "gelu_tanh" if family.gemma else "silu"
