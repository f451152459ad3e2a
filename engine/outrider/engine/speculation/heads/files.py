"""Reads heads from directories and GGUF files, and writes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from outrider.engine.errors import ModelError
from outrider.engine.models.checkpoint import Checkpoint
from outrider.engine.models.config import ModelConfig
from outrider.engine.models.fields import Fields
from outrider.engine.models.gguf.header import is_gguf
from outrider.engine.speculation.heads.block import BlockHead
from outrider.engine.speculation.heads.decoder import Rows
from outrider.engine.speculation.heads.eagle import EagleHead
from outrider.engine.speculation.heads.gguf import HeadFile
from outrider.engine.speculation.heads.layout import Layout, canonical, read_layout
from outrider.engine.speculation.heads.shape import BlockShape, EagleShape, HeadShape
from safetensors.torch import save_file
from torch import Tensor

_IGNORED = ("t2d", "rotary_emb.inv_freq", "verifier_norm.weight", "verifier_lm_head.weight")
"""Endings of tensors without effect: the inverse of d2t, and copies of the target's."""


def load_head(
    directory: Path,
    target: ModelConfig,
    *,
    embed: Rows | None = None,
    output: Rows | None = None,
    layers: tuple[int, ...] | None = None,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
) -> tuple[EagleHead | BlockHead, Layout]:
    """The head of a directory or GGUF file, and what it is.

    Args:
        directory: directory with config.json and safetensors, or a GGUF file.
        target: configuration of the target.
        embed: the target's embedding (see `outrider.engine.speculation.heads.decoder.Head`).
        output: the target's output layer.
        layers: the target's states to read, in place of those that config.json names.
        dtype: of the weights.
        device: of the weights.

    Raises:
        ModelError: there is no head that can be read, a file is damaged, or the head is for another target.
    """
    checkpoint: Checkpoint | HeadFile
    if is_gguf(directory):
        checkpoint = HeadFile(directory)
        fields = checkpoint.fields
    else:
        fields, checkpoint = Fields.read(directory / "config.json"), Checkpoint(directory)
    names = {canonical(name): name for name in checkpoint.names}
    layout = read_layout(fields, names, target, layers)
    shape, sizes = layout.shape, layout.shape.sizes()
    for name in names:
        if name not in sizes and name != "d2t" and not name.endswith(_IGNORED):
            raise ModelError(f"{directory} has a tensor {names[name]} that {layout.kind} heads have no use for")
    tensors = {
        name: checkpoint.take(names.get(name, name), size).to(device=device, dtype=dtype, copy=True)
        for name, size in sizes.items()
    }
    targets = _targets(directory, checkpoint, names, shape)
    parts = embed, output, None if targets is None else targets.to(device)
    if isinstance(shape, EagleShape):
        return EagleHead(shape, tensors, *parts), layout
    assert isinstance(shape, BlockShape)
    return BlockHead(shape, tensors, *parts), layout


def _targets(
    directory: Path, checkpoint: Checkpoint | HeadFile, names: dict[str, str], shape: HeadShape
) -> Tensor | None:
    """The target's ids of a smaller draft vocabulary; the tensor d2t has their distances from the head's."""
    size = shape.draft_vocabulary
    if "d2t" not in names and size == shape.vocabulary:
        return None
    targets = checkpoint.take_stored(names.get("d2t", "d2t"), (size,), ("I64", "I32")).long() + torch.arange(size)
    if targets.min() < 0 or targets.max() >= shape.vocabulary or (targets.diff() <= 0).any():
        raise ModelError(
            f"{directory}: d2t must lead to ascending ids of the target, which are below {shape.vocabulary}"
        )
    return None if size == shape.vocabulary else targets


def save_head(directory: Path, head: EagleHead | BlockHead) -> None:
    """Writes a head in the layout of its authors: EAGLE-3's, or DeepSpec's for blocks.

    A smaller draft vocabulary is written as EAGLE-3 does, in d2t and t2d, which vLLM reads for blocks too.

    Raises:
        ValueError: the rotary positions are scaled.
    """
    shape, tensors = head.shape, {name: t.detach().contiguous().clone() for name, t in head.tensors.items()}
    if isinstance(shape, EagleShape):
        tensors = {name.replace("layers.0.", "midlayer."): tensor for name, tensor in tensors.items()}
    if head.targets is not None:
        ids = head.targets.cpu()
        tensors["d2t"] = ids - torch.arange(len(ids))
        tensors["t2d"] = torch.zeros(shape.vocabulary, dtype=torch.bool).index_fill_(0, ids, True)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps(_config(shape), indent=2) + "\n")
    save_file(tensors, directory / "model.safetensors")


def _config(shape: HeadShape) -> dict[str, Any]:
    if shape.rope.kind != "default" or shape.rope.share != 1:
        raise ValueError("only heads with plain rotary positions can be written")
    config = {
        "model_type": "qwen3" if shape.query_key_norm else "llama",
        "hidden_size": shape.hidden_size,
        "target_hidden_size": shape.target_hidden_size,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "intermediate_size": shape.intermediate_size,
        "hidden_act": "silu",
        "rms_norm_eps": shape.norm_eps,
        "rope_theta": shape.rope.theta,
        "vocab_size": shape.vocabulary,
        "draft_vocab_size": shape.draft_vocabulary,
        "attention_bias": shape.attention_bias,
        "tie_word_embeddings": False,
    }
    if isinstance(shape, EagleShape):
        return config | {
            "architectures": ["LlamaForCausalLMEagle3"],
            "eagle_aux_hidden_state_layer_ids": list(shape.target_layers),
            "norm_before_residual": shape.norm_before_residual,
            "fc_norm": shape.feature_norm == "each",
            "norm_before_fc": shape.feature_norm == "all",
            "norm_output": shape.norm_output,
        }
    assert isinstance(shape, BlockShape)
    return config | {
        "architectures": ["Qwen3DSparkModel"],
        "target_layer_ids": [layer - 1 for layer in shape.target_layers],
        "block_size": shape.block_size,
        "mask_token_id": shape.mask_token,
        "sample_from_anchor": shape.from_anchor,
        "markov_rank": shape.markov_rank,
        "markov_head_type": shape.markov_kind,
        "enable_confidence_head": shape.confidence,
        "confidence_head_with_markov": shape.confidence_with_markov,
    }
