"""Writes small GGUF files with the ``gguf`` package, as converters do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gguf import GGMLQuantizationType, GGUFWriter, get_tensor_name_map, quants
from gguf.constants import MODEL_ARCH, MODEL_ARCH_NAMES
from torch import Tensor
from transformers import PreTrainedModel

F32 = GGMLQuantizationType.F32
Change = Callable[[GGUFWriter], None]
ARCHITECTURES = {
    "LlamaForCausalLM": "llama",
    "MistralForCausalLM": "llama",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen3ForCausalLM": "qwen3",
    "Gemma3ForCausalLM": "gemma3",
}


def write_file(path: Path, architecture: str, fill: Change) -> Path:
    """A file whose contents ``fill`` adds."""
    writer = GGUFWriter(path, architecture)
    fill(writer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def write_model(
    path: Path,
    model: PreTrainedModel,
    kind: GGMLQuantizationType = F32,
    words: Change | None = None,
    more: Change | None = None,
) -> Path:
    """A file of a model of transformers, whose matrices are of a ``kind``."""
    architecture = ARCHITECTURES[type(model).__name__]

    def fill(writer: GGUFWriter) -> None:
        add_sizes(writer, architecture, model.config)
        (words or add_words)(writer)
        for name, tensor in file_tensors(architecture, model).items():
            add_tensor(writer, name, tensor, kind)
        if more is not None:
            more(writer)

    return write_file(path, architecture, fill)


def add_sizes(writer: GGUFWriter, architecture: str, config: Any) -> None:
    """The hyperparameters."""
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_key_length(config.head_dim if getattr(config, "head_dim", None) else _head_dim(config))
    rope = config.rope_parameters
    wide = rope.get("full_attention", rope)
    writer.add_rope_freq_base(wide["rope_theta"])
    if wide["rope_type"] == "linear":
        writer.add_string(f"{architecture}.rope.scaling.type", "linear")
        writer.add_rope_scaling_factor(wide["factor"])
    if wide["rope_type"] == "yarn":
        _add_yarn(writer, architecture, wide)
    if getattr(config, "sliding_window", None) is not None:
        writer.add_sliding_window(config.sliding_window)
    if architecture == "gemma3":
        writer.add_float32("gemma3.attention.scale", config.query_pre_attn_scalar**-0.5)
        slides = [kind == "sliding_attention" for kind in config.layer_types]
        if slides != [(layer + 1) % 6 > 0 for layer in range(len(slides))]:
            writer.add_sliding_window_pattern(slides)


def _add_yarn(writer: GGUFWriter, architecture: str, rope: Mapping[str, Any]) -> None:
    writer.add_string(f"{architecture}.rope.scaling.type", "yarn")
    writer.add_rope_scaling_factor(rope["factor"])
    writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])


def add_words(writer: GGUFWriter, count: int = 67) -> None:
    """A vocabulary without merges."""
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list([f"<{number}>" for number in range(count)])
    writer.add_token_types([1] * count)
    writer.add_array("tokenizer.ggml.merges", ["<1> <2>"])
    writer.add_eos_token_id(2)


def file_tensors(architecture: str, model: PreTrainedModel) -> dict[str, Tensor]:
    """The tensors of a file by their names there, changed as converters change them."""
    config = model.config
    number = next(number for number, name in MODEL_ARCH_NAMES.items() if name == architecture)
    names = get_tensor_name_map(MODEL_ARCH(number), config.num_hidden_layers)
    tensors = {}
    for name, tensor in model.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        own = names.get_name(name, (".weight", ".bias"))
        assert own is not None, name
        tensors[own] = _converted(architecture, name, tensor.float(), config)
    if getattr(config, "rope_parameters", {}).get("rope_type") == "llama3":
        tensors["rope_freqs.weight"] = _rope_factors(model)
    return tensors


def add_tensor(writer: GGUFWriter, name: str, tensor: Tensor, kind: GGMLQuantizationType) -> None:
    """Adds a tensor; vectors stay in 32 bits."""
    if tensor.ndim == 1:
        writer.add_tensor(name, tensor.numpy())
    else:
        writer.add_tensor(name, quants.quantize(tensor.numpy(), kind), raw_dtype=kind)


def rounded(tensor: Tensor, kind: GGMLQuantizationType) -> Tensor:
    """The numbers that a ``kind`` keeps of a matrix."""
    return torch.from_numpy(np.array(quants.dequantize(quants.quantize(tensor.numpy(), kind), kind)))


def _head_dim(config: Any) -> int:
    return int(config.hidden_size // config.num_attention_heads)


def _converted(architecture: str, name: str, tensor: Tensor, config: Any) -> Tensor:
    if architecture == "gemma3" and name.endswith("norm.weight"):
        return tensor + 1
    heads: Mapping[str, int] = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    part = name.split(".")[-2]
    if architecture != "llama" or part not in heads:
        return tensor
    halves = tensor.reshape(heads[part], 2, -1, *tensor.shape[1:])
    return halves.transpose(1, 2).reshape(tensor.shape).contiguous()


def _rope_factors(model: PreTrainedModel) -> Tensor:
    rope, config = model.model.rotary_emb, model.config
    head_dim = 2 * len(rope.inv_freq)
    plain = config.rope_parameters["rope_theta"] ** -(torch.arange(0, head_dim, 2) / head_dim)
    return (plain / rope.inv_freq).float()
