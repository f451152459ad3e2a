"""A file's metadata as the fields of Hugging Face's ``config.json``."""

from __future__ import annotations

from typing import Any

from outrider.engine.errors import ModelError
from outrider.engine.models.gguf.header import GgufFile
from outrider.engine.models.gguf.metadata import NONE
from outrider.engine.models.gguf.names import ARCHITECTURES
from outrider.engine.models.gguf.rope import rope_parameters

_EMBEDDING = "token_embd.weight"
_NAMES = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM"}
_FLOATS = {"F32": "float32", "F16": "float16"}
_GEMMA_LOCAL_THETA, _GEMMA_PATTERN, _GEMMA_WINDOW = 10_000.0, 6, 1024
_GEMMA_27B_LAYERS = 62


def architecture_of(file: GgufFile) -> str:
    """The architecture of a file, one of `ARCHITECTURES`; `ModelError` for another."""
    architecture = file.metadata.text("general.architecture")
    if architecture not in ARCHITECTURES:
        raise file.metadata.wrong("general.architecture", "one of " + ", ".join(ARCHITECTURES))
    if file.metadata.value("split.count") not in (None, 0, 1):
        raise file.metadata.wrong("split.count", "1 or absent: parts of a model have to be merged into one file")
    return architecture


def config_fields(file: GgufFile) -> dict[str, Any]:
    """The fields of ``config.json``.

    Raises:
        ModelError: a key is missing or has a value that is not supported.
    """
    architecture = architecture_of(file)
    fields = _sizes(file, architecture)
    if architecture == "gemma3":
        return fields | _gemma(file, fields)
    rope = rope_parameters(file, architecture, fields["head_dim"], 10_000.0)
    return fields | _biases(file) | _llama_like(file, architecture) | {"rope_parameters": rope}


def _sizes(file: GgufFile, architecture: str) -> dict[str, Any]:
    metadata = file.metadata
    hidden = metadata.count(f"{architecture}.embedding_length")
    heads = metadata.count(f"{architecture}.attention.head_count")
    return {
        "vocab_size": _vocabulary_size(file, hidden),
        "hidden_size": hidden,
        "num_hidden_layers": _layers(file, architecture),
        "num_attention_heads": heads,
        "num_key_value_heads": metadata.count(f"{architecture}.attention.head_count_kv", heads),
        "head_dim": _head_dim(file, architecture, hidden, heads),
        "intermediate_size": metadata.count(f"{architecture}.feed_forward_length"),
        "max_position_embeddings": metadata.count(f"{architecture}.context_length"),
        "rms_norm_eps": metadata.positive(f"{architecture}.attention.layer_norm_rms_epsilon"),
        "dtype": _dtype(file),
        "tie_word_embeddings": "output.weight" not in file.tensors,
    }


def _layers(file: GgufFile, architecture: str) -> int:
    key = f"{architecture}.block_count"
    layers = file.metadata.count(key)
    if layers > len(file.tensors):
        raise file.metadata.wrong(key, f"at most the number of tensors, {len(file.tensors)}")
    return layers


def _vocabulary_size(file: GgufFile, hidden: int) -> int:
    place = file.tensors.get(_EMBEDDING)
    if place is None:
        raise ModelError(f"{file.path} has no tensor {_EMBEDDING}")
    if len(place.shape) != 2 or place.shape[1] != hidden:
        raise ModelError(f"{file.path}: {_EMBEDDING} has shape {list(place.shape)}; it must be [tokens, {hidden}]")
    return place.shape[0]


def _head_dim(file: GgufFile, architecture: str, hidden: int, heads: int) -> int:
    metadata, key = file.metadata, f"{architecture}.attention.key_length"
    if key not in metadata and hidden % heads:
        raise metadata.wrong(f"{architecture}.attention.head_count", f"a divisor of {hidden}, or key_length given")
    head_dim = metadata.count(key, hidden // heads)
    for other in (f"{architecture}.attention.value_length", f"{architecture}.rope.dimension_count"):
        if other in metadata and metadata.count(other) != head_dim:
            raise metadata.wrong(other, f"{head_dim}, as long as a head's keys")
    return head_dim


def _dtype(file: GgufFile) -> str:
    """The dtype of the embedding; that of quantized weights, which hold fewer bits, is bfloat16."""
    return _FLOATS.get(file.tensors[_EMBEDDING].type.name, "bfloat16")


def _biases(file: GgufFile) -> dict[str, bool]:
    names = file.tensors
    return {"attention_bias": "blk.0.attn_q.bias" in names, "mlp_bias": "blk.0.ffn_up.bias" in names}


def _llama_like(file: GgufFile, architecture: str) -> dict[str, Any]:
    metadata, window = file.metadata, f"{architecture}.attention.sliding_window"
    experts = f"{architecture}.expert_count"
    if metadata.value(experts) not in (None, 0):
        raise metadata.wrong(experts, "0 or absent: mixtures of experts are not supported")
    if metadata.value(window) in (None, 0, *NONE):
        return {"architectures": [_NAMES[architecture]]}
    if architecture == "llama":
        return {"architectures": ["MistralForCausalLM"], "sliding_window": metadata.count(window)}
    return {
        "architectures": [_NAMES[architecture]],
        "use_sliding_window": True,
        "max_window_layers": 0,
        "sliding_window": metadata.count(window),
    }


def _gemma(file: GgufFile, sizes: dict[str, Any]) -> dict[str, Any]:
    metadata = file.metadata
    layers, head_dim = sizes["num_hidden_layers"], sizes["head_dim"]
    local_theta = metadata.positive("gemma3.rope.freq_base_swa", _GEMMA_LOCAL_THETA)
    return {
        "architectures": ["Gemma3ForCausalLM"],
        "model_type": "gemma3_text",
        "hidden_activation": "gelu_pytorch_tanh",
        "attention_bias": False,
        "query_pre_attn_scalar": _gemma_scalar(file, layers, head_dim, sizes),
        "sliding_window": metadata.count("gemma3.attention.sliding_window", _GEMMA_WINDOW),
        "layer_types": _gemma_layers(file, layers),
        "rope_parameters": {
            "full_attention": rope_parameters(file, "gemma3", head_dim, 1_000_000.0),
            "sliding_attention": {"rope_type": "default", "rope_theta": local_theta},
        },
        "attn_logit_softcapping": metadata.value("gemma3.attn_logit_softcapping"),
        "final_logit_softcapping": metadata.value("gemma3.final_logit_softcapping"),
    }


def _gemma_scalar(file: GgufFile, layers: int, head_dim: int, sizes: dict[str, Any]) -> int | float:
    """Queries are divided by the root of this. Files do not say that Gemma 3 27B has another one than the rest."""
    if "gemma3.attention.scale" in file.metadata:
        return file.metadata.positive("gemma3.attention.scale") ** -2
    is_27b = layers == _GEMMA_27B_LAYERS
    return int(sizes["hidden_size"]) // int(sizes["num_attention_heads"]) if is_27b else head_dim


def _gemma_layers(file: GgufFile, layers: int) -> list[str]:
    """The kind of attention of each layer: every sixth is full, if the file does not say otherwise."""
    metadata, key = file.metadata, "gemma3.attention.sliding_window_pattern"
    given = metadata.value(key)
    if key in metadata and not isinstance(given, int):
        if not isinstance(given, str) and len(given) == layers and all(item in (0, 1) for item in given):
            return ["sliding_attention" if item else "full_attention" for item in given]
        raise metadata.wrong(key, f"a whole number, or {layers} truth values")
    period = metadata.count(key, _GEMMA_PATTERN)
    return ["sliding_attention" if (layer + 1) % period else "full_attention" for layer in range(layers)]
