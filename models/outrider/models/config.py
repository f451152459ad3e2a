"""The configuration of a model: ``config.json`` and ``generation_config.json``, or a GGUF file's metadata."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from outrider.models.errors import ModelError
from outrider.models.fields import Fields
from outrider.models.gguf.config import config_fields, generation_fields
from outrider.models.gguf.header import GgufFile, is_gguf

ARCHITECTURES = ("LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM")
DTYPES = ("float32", "bfloat16", "float16")
ROPE_TYPES = ("default", "linear", "llama3")


@dataclass(frozen=True, slots=True)
class RopeConfig:
    """Rotary frequencies.

    Attributes:
        theta: base of the geometric series of wavelengths.
        kind: ``default``, ``linear`` (positions divided by ``factor``) or ``llama3`` (long wavelengths divided by it).
        factor: divisor of ``linear`` and ``llama3``.
        low_frequency_factor: ``llama3`` divides wavelengths above original_length / this.
        high_frequency_factor: ``llama3`` keeps wavelengths below original_length / this.
        original_length: context length of the first training, for ``llama3``.
    """

    theta: float
    kind: str = "default"
    factor: float = 1.0
    low_frequency_factor: float = 1.0
    high_frequency_factor: float = 4.0
    original_length: int = 8192


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """A Llama-family decoder.

    Attributes:
        architecture: one of `ARCHITECTURES`.
        context_length: most positions of a sequence, at most the sliding window, since no kernel applies windows.
        dtype: dtype of the checkpoint, one of `DTYPES`.
        query_key_norm: whether each head's queries and keys are normed (Qwen3).
        attention_bias: whether queries, keys and values have a bias.
        output_bias: whether the attention's output has a bias.
        feed_forward_bias: whether the feed-forward block's products have a bias.
        eos_token_ids: ids that end a text, from generation_config.json, else from config.json.
        tie: whether the output layer is the embedding.
    """

    architecture: str
    vocab_size: int
    hidden_size: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate_size: int
    context_length: int
    norm_eps: float
    rope: RopeConfig
    dtype: str
    tie: bool
    query_key_norm: bool
    attention_bias: bool
    output_bias: bool
    feed_forward_bias: bool
    eos_token_ids: tuple[int, ...]

    @classmethod
    def load(cls, path: Path) -> ModelConfig:
        """The configuration of the model in ``path``, a Hugging Face directory or a GGUF file.

        Raises:
            ModelError: the directory or a file is missing, or a field is missing, wrong or not supported.
        """
        if is_gguf(path):
            file = GgufFile.open(path)
            return cls.of(Fields(str(path), config_fields(file)), Fields(str(path), generation_fields(file)))
        if not path.is_dir():
            raise ModelError(f"{path} is neither a directory nor a GGUF file")
        fields = Fields.read(path / "config.json")
        generation = path / "generation_config.json"
        return cls.of(fields, Fields.read(generation) if generation.exists() else None)

    @classmethod
    def of(cls, fields: Fields, generation: Fields | None = None) -> ModelConfig:
        """The configuration in the fields of a config.json, and of a generation_config.json if there is one.

        Raises:
            ModelError: a field is missing, wrong or not supported.
        """
        return _model(fields, Fields("generation_config.json", {}) if generation is None else generation)


def _model(fields: Fields, generation: Fields) -> ModelConfig:
    architecture = _architecture(fields)
    _refuse_unsupported(fields)
    hidden, heads = fields.count("hidden_size"), fields.count("num_attention_heads")
    kv_heads = fields.count("num_key_value_heads", heads)
    head_dim = _head_dim(fields, hidden, heads, kv_heads, architecture)
    window = _sliding_window(fields, architecture)
    length = fields.count("max_position_embeddings")
    biased = fields.flag("attention_bias", False)
    eos = generation.ids("eos_token_id") or fields.ids("eos_token_id")
    return ModelConfig(
        architecture=architecture,
        vocab_size=fields.count("vocab_size"),
        hidden_size=hidden,
        layers=fields.count("num_hidden_layers"),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        intermediate_size=fields.count("intermediate_size"),
        context_length=length if window is None else min(length, window),
        norm_eps=fields.positive("rms_norm_eps", 1e-6),
        rope=_rope(fields),
        dtype=_dtype(fields),
        tie=fields.flag("tie_word_embeddings", False),
        query_key_norm=architecture == "Qwen3ForCausalLM",
        attention_bias=biased or architecture == "Qwen2ForCausalLM",
        output_bias=biased and architecture != "Qwen2ForCausalLM",
        feed_forward_bias=architecture == "LlamaForCausalLM" and fields.flag("mlp_bias", False),
        eos_token_ids=eos,
    )


def _architecture(fields: Fields) -> str:
    named = fields.values.get("architectures")
    if not isinstance(named, list) or len(named) != 1 or named[0] not in ARCHITECTURES:
        raise fields.wrong("architectures", "a list of one of " + ", ".join(ARCHITECTURES))
    return str(named[0])


def _refuse_unsupported(fields: Fields) -> None:
    if fields.text("hidden_act", "silu") != "silu":
        raise fields.wrong("hidden_act", '"silu"')


def _head_dim(fields: Fields, hidden: int, heads: int, kv_heads: int, architecture: str) -> int:
    if heads % kv_heads:
        raise fields.wrong("num_key_value_heads", f"a divisor of num_attention_heads, which is {heads}")
    if fields.values.get("head_dim") is None and architecture == "Qwen3ForCausalLM":
        return 128
    if fields.values.get("head_dim") is None and hidden % heads:
        raise fields.wrong("hidden_size", f"a multiple of num_attention_heads, which is {heads}, or head_dim given")
    head_dim = fields.count("head_dim", hidden // heads)
    if head_dim % 2:
        raise fields.wrong("head_dim", "even")
    return head_dim


def _sliding_window(fields: Fields, architecture: str) -> int | None:
    if architecture == "MistralForCausalLM":
        absent = "sliding_window" in fields.values and fields.values["sliding_window"] is None
        return None if absent else fields.count("sliding_window", 4096)
    if architecture != "LlamaForCausalLM" and fields.flag("use_sliding_window", False):
        return None if fields.values.get("sliding_window") is None else fields.count("sliding_window")
    return None


def _dtype(fields: Fields) -> str:
    name = "dtype" if fields.values.get("dtype") is not None else "torch_dtype"
    dtype = fields.text(name, "float32")
    if dtype not in DTYPES:
        raise fields.wrong(name, "one of " + ", ".join(DTYPES))
    return dtype


def _rope(fields: Fields) -> RopeConfig:
    """Reads the newer layout (``rope_parameters``) or the older (``rope_theta`` beside ``rope_scaling``)."""
    scaling = fields.within("rope_parameters") or fields.within("rope_scaling")
    for where in (fields, scaling):
        if where is not None and where.positive("partial_rotary_factor", 1.0) != 1.0:
            raise where.wrong("partial_rotary_factor", "1.0 or absent")
    if scaling is None:
        return RopeConfig(fields.positive("rope_theta", 10000.0))
    theta = scaling.positive("rope_theta", fields.positive("rope_theta", 10000.0))
    name = "rope_type" if scaling.values.get("rope_type") is not None else "type"
    kind = scaling.text(name, "default")
    if kind not in ROPE_TYPES:
        raise scaling.wrong(name, "one of " + ", ".join(ROPE_TYPES))
    if kind == "default":
        return RopeConfig(theta)
    if kind == "linear":
        return RopeConfig(theta, kind, scaling.positive("factor"))
    return RopeConfig(
        theta,
        kind,
        scaling.positive("factor"),
        scaling.positive("low_freq_factor"),
        scaling.positive("high_freq_factor"),
        scaling.count("original_max_position_embeddings"),
    )
