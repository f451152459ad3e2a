"""Heads with random weights in the layouts that are published, and what each of them means.

Names of tensors and fields follow the repositories that `outrider.engine.speculation.heads.layout` names.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

VOCABULARY, DRAFTED, TARGET, HIDDEN, HEADS, KV_HEADS, SIZE, INNER = 50, 30, 32, 32, 4, 2, 16, 48
THETA, EPS, MASK, RANK = 5000.0, 1e-5, 49, 6


@dataclass
class Published:
    """A checkpoint and its meaning.

    Attributes:
        config: of its config.json.
        tensors: of its file.
        layers: the states of the target that it reads, counted by what they enter.
        facts: what its fields mean, for the readings in `plain`.
    """

    config: dict[str, Any]
    tensors: dict[str, Tensor]
    layers: tuple[int, ...]
    facts: dict[str, Any] = field(default_factory=dict)

    def save(self, directory: Path, **changes: Any) -> Path:
        directory.mkdir(parents=True, exist_ok=True)
        config = {name: value for name, value in {**self.config, **changes}.items() if value != "absent"}
        (directory / "config.json").write_text(json.dumps(config))
        save_file(self.tensors, directory / "model.safetensors")
        return directory


class _Random:
    def __init__(self, seed: int) -> None:
        self.dice = torch.Generator().manual_seed(seed)

    def weight(self, *shape: int) -> Tensor:
        return torch.randn(*shape, generator=self.dice) * 1.5 * shape[-1] ** -0.5

    def norm(self, size: int = HIDDEN) -> Tensor:
        return 1 + 0.3 * torch.randn(size, generator=self.dice)

    def layer(self, name: str, inputs: int, head_norm: bool) -> dict[str, Tensor]:
        found = {
            "input_layernorm.weight": self.norm(),
            "post_attention_layernorm.weight": self.norm(),
            "self_attn.q_proj.weight": self.weight(HEADS * SIZE, inputs),
            "self_attn.k_proj.weight": self.weight(KV_HEADS * SIZE, inputs),
            "self_attn.v_proj.weight": self.weight(KV_HEADS * SIZE, inputs),
            "self_attn.o_proj.weight": self.weight(HIDDEN, HEADS * SIZE),
            "mlp.gate_proj.weight": self.weight(INNER, HIDDEN),
            "mlp.up_proj.weight": self.weight(INNER, HIDDEN),
            "mlp.down_proj.weight": self.weight(HIDDEN, INNER),
        }
        if head_norm:
            found |= {"self_attn.q_norm.weight": self.norm(SIZE), "self_attn.k_norm.weight": self.norm(SIZE)}
        return {f"{name}.{tensor}": value for tensor, value in found.items()}

    def draft_vocabulary(self) -> dict[str, Tensor]:
        ids = torch.randperm(VOCABULARY, generator=self.dice)[:DRAFTED].sort().values
        chosen = torch.zeros(VOCABULARY, dtype=torch.bool).index_fill_(0, ids, True)
        return {"d2t": ids - torch.arange(DRAFTED), "t2d": chosen}

    def markov(self, kind: str, drafted: int) -> dict[str, Tensor]:
        found = {"markov_w1.weight": self.weight(VOCABULARY, RANK), "markov_w2.weight": self.weight(drafted, RANK)}
        if kind == "gated":
            found |= {"gate_proj.weight": self.weight(RANK, HIDDEN + RANK), "gate_proj.bias": self.weight(RANK)}
        if kind == "rnn":
            found |= {"joint_proj.weight": self.weight(3 * RANK, HIDDEN + 2 * RANK)}
            found |= {"joint_proj.bias": self.weight(3 * RANK)}
        return {f"markov_head.{name}": value for name, value in found.items()}

    def confidence(self, inputs: int) -> dict[str, Tensor]:
        return {"confidence_head.proj.weight": self.weight(1, inputs), "confidence_head.proj.bias": self.weight(1)}


def _decoder(kind: str, layers: int, **more: Any) -> dict[str, Any]:
    return {
        "model_type": kind,
        "hidden_size": HIDDEN,
        "intermediate_size": INNER,
        "num_hidden_layers": layers,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": SIZE,
        "hidden_act": "silu",
        "rms_norm_eps": EPS,
        "rope_theta": THETA,
        "vocab_size": VOCABULARY,
        "max_position_embeddings": 512,
        "tie_word_embeddings": False,
        **more,
    }


def _eagle(dice: _Random, layers: int, first: str, *, head_norm: bool = False) -> dict[str, Tensor]:
    found = {"fc.weight": dice.weight(HIDDEN, 3 * TARGET), "norm.weight": dice.norm()}
    found |= dice.layer(first, 2 * HIDDEN, head_norm) | {f"{first}.hidden_norm.weight": dice.norm()}
    for index in range(1, layers):
        found |= dice.layer(f"layers.{index}", HIDDEN, head_norm)
    return found | dice.draft_vocabulary() | {"lm_head.weight": dice.weight(DRAFTED, HIDDEN)}


def eagle3(seed: int = 1) -> Published:
    """The authors' layout, SafeAILab/EAGLE."""
    dice = _Random(seed)
    config = _decoder("llama", 1, draft_vocab_size=DRAFTED, architectures=["LlamaForCausalLM"])
    tensors = _eagle(dice, 1, "midlayer") | {"embed_tokens.weight": dice.weight(VOCABULARY, HIDDEN)}
    return Published(config | {"eagle_aux_hidden_state_layer_ids": [0, 1, 2]}, tensors, (0, 1, 2))


def eagle31(seed: int = 2) -> Published:
    """SpecForge's layout of 3.1; the target's embedding."""
    dice = _Random(seed)
    config = _decoder("llama", 1, draft_vocab_size=DRAFTED, architectures=["LlamaForCausalLMEagle3"])
    config |= {"fc_norm": True, "norm_output": True}
    config |= {"eagle_config": {"eagle_aux_hidden_state_layer_ids": [-1, 0, 1]}}
    tensors = _eagle(dice, 1, "midlayer") | {f"fc_norm.{place}.weight": dice.norm(TARGET) for place in range(3)}
    return Published(config, tensors, (0, 1, 2), {"feature_norm": "each", "norm_output": True})


def eagle3_of_speculators(seed: int = 3) -> Published:
    """The layout of the library speculators, with two layers of Qwen3 and one norm over all features."""
    dice = _Random(seed)
    config = {
        "architectures": ["Eagle3Speculator"],
        "speculators_model_type": "eagle3",
        "speculators_config": {"algorithm": "eagle3", "verifier": {"name_or_path": "toy"}},
        "transformer_layer_config": _decoder("qwen3", 2),
        "draft_vocab_size": DRAFTED,
        "norm_before_residual": True,
        "norm_before_fc": True,
        "target_hidden_size": None,
        "eagle_aux_hidden_state_layer_ids": [0, 1, 2],
    }
    tensors = _eagle(dice, 2, "layers.0", head_norm=True) | {"input_norm.weight": dice.norm(3 * TARGET)}
    return Published(config, tensors, (0, 1, 2), {"feature_norm": "all", "norm_before_residual": True})


def _block(dice: _Random, layers: int, states: int) -> dict[str, Tensor]:
    found = {"fc.weight": dice.weight(HIDDEN, states * TARGET), "hidden_norm.weight": dice.norm()}
    for index in range(layers):
        found |= dice.layer(f"layers.{index}", HIDDEN, True)
    return found | {"norm.weight": dice.norm()}


def dflash(seed: int = 4) -> Published:
    """The authors' layout, z-lab/dflash; the target's embedding and output."""
    config = _decoder("qwen3", 2, architectures=["DFlashDraftModel"], block_size=5, num_target_layers=2)
    config |= {"dflash_config": {"mask_token_id": MASK, "target_layer_ids": [0, 1]}}
    config |= {"layer_types": ["full_attention"] * 2}
    return Published(config, _block(_Random(seed), 2, 2), (1, 2), {"block": 5})


def dspark(kind: str = "vanilla", seed: int = 5, *, confidence: bool = True) -> Published:
    """The authors' layout, deepseek-ai/DeepSpec, with an embedding and an output layer of its own."""
    dice = _Random(seed)
    config = _decoder("qwen3", 2, architectures=["Qwen3DSparkModel"], block_size=4, num_target_layers=2, num_anchors=8)
    config |= {"mask_token_id": MASK, "target_layer_ids": [-1, 1], "markov_rank": RANK, "markov_head_type": kind}
    config |= {"enable_confidence_head": confidence, "confidence_head_with_markov": confidence}
    tensors = _block(dice, 2, 2) | dice.markov(kind, VOCABULARY)
    tensors |= {name: dice.weight(VOCABULARY, HIDDEN) for name in ("embed_tokens.weight", "lm_head.weight")}
    tensors |= dice.confidence(HIDDEN + RANK) if confidence else {}
    facts = {"block": 4, "anchor": True, "markov": kind, "confidence": "markov" if confidence else None}
    return Published(config, tensors, (0, 2), facts)


def dspark_of_specforge(seed: int = 6) -> Published:
    """SpecForge's layout: DFlash's, with what is DSpark's inside ``dflash_config``."""
    dice, published = _Random(seed), dflash(seed)
    inner = {"projector_type": "dspark", "markov_rank": RANK, "markov_head_type": "vanilla"}
    inner |= {"enable_confidence_head": True, "confidence_head_with_markov": False}
    config = published.config | {"dflash_config": published.config["dflash_config"] | inner}
    tensors = published.tensors | dice.markov("vanilla", VOCABULARY) | dice.confidence(HIDDEN)
    facts = {"block": 5, "anchor": True, "markov": "vanilla", "confidence": "states"}
    return Published(config, tensors, (1, 2), facts)


def _of_speculators(kind: str, tensors: dict[str, Tensor], dice: _Random) -> tuple[dict[str, Any], dict[str, Tensor]]:
    config = {
        "architectures": ["DFlashSpeculator"],
        "speculators_model_type": kind,
        "speculators_config": {"algorithm": kind, "verifier": {"name_or_path": "toy"}},
        "transformer_layer_config": _decoder("qwen3", 2, layer_types=["full_attention"] * 2),
        "draft_vocab_size": DRAFTED,
        "block_size": 5,
        "aux_hidden_state_layer_ids": [1, 2],
        "mask_token_id": MASK,
    }
    tensors = tensors | dice.draft_vocabulary() | {"lm_head.weight": dice.weight(DRAFTED, HIDDEN)}
    return config, tensors | {"embed_tokens.weight": dice.weight(VOCABULARY, HIDDEN)}


def dflash_of_speculators(seed: int = 7) -> Published:
    """DFlash in the layout of the library speculators, with a draft vocabulary."""
    dice = _Random(seed)
    config, tensors = _of_speculators("dflash", _block(dice, 2, 2), dice)
    return Published(config, tensors, (1, 2), {"block": 5})


def dspark_of_speculators(seed: int = 8) -> Published:
    """DSpark in the layout of the library speculators, with a draft vocabulary."""
    dice = _Random(seed)
    config, tensors = _of_speculators("dspark", _block(dice, 2, 2), dice)
    config |= {"markov_rank": RANK, "markov_head_type": "gated", "sample_from_anchor": False}
    config |= {"enable_confidence_head": True, "confidence_head_with_markov": True}
    tensors |= dice.markov("gated", DRAFTED) | dice.confidence(HIDDEN + RANK)
    return Published(config, tensors, (1, 2), {"block": 5, "markov": "gated", "confidence": "markov"})


EAGLES: dict[str, Callable[[], Published]] = {
    "eagle3": eagle3,
    "eagle31": eagle31,
    "eagle3_of_speculators": eagle3_of_speculators,
}
BLOCKS: dict[str, Callable[[], Published]] = {
    "dflash": dflash,
    "dspark": dspark,
    "dspark_gated": lambda: dspark("gated", 15),
    "dspark_rnn": lambda: dspark("rnn", 16, confidence=False),
    "dspark_of_specforge": dspark_of_specforge,
    "dflash_of_speculators": dflash_of_speculators,
    "dspark_of_speculators": dspark_of_speculators,
}
