"""The configuration of a model: ``config.json``, or a GGUF file's metadata."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from outrider.engine.errors import ModelError
from outrider.engine.models.families.experts import Experts
from outrider.engine.models.families.family import FAMILIES, Activation, Family, activation, architecture
from outrider.engine.models.families.rope import RopeConfig, read_ropes
from outrider.engine.models.families.windows import Windows
from outrider.engine.models.fields import Fields
from outrider.engine.models.gguf.config import config_fields
from outrider.engine.models.gguf.header import GgufFile, is_gguf

__all__ = ["ARCHITECTURES", "DTYPES", "Experts", "ModelConfig", "RopeConfig"]

ARCHITECTURES = tuple(FAMILIES)
DTYPES = ("float32", "bfloat16", "float16")
_ABSENT = ("final_logit_softcapping", "attn_logit_softcapping", "use_bidirectional_attention")


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """A Llama-family decoder.

    Attributes:
        architecture: one of `ARCHITECTURES`.
        context_length: most positions of a sequence.
        rope: rotary positions of layers that see everything.
        local_rope: rotary positions of layers with a sliding window.
        dtype: dtype of the checkpoint, one of `DTYPES`.
        query_key_norm: whether each head's queries and keys are normed (Qwen3, Gemma 3).
        attention_bias: whether queries, keys and values have a bias.
        output_bias: whether the attention's output has a bias.
        feed_forward_bias: whether the feed-forward block's matmuls have a bias.
        tie: whether the output layer is the embedding if the checkpoint has no other.
        activation: of the feed-forward block's gate: ``silu`` or ``gelu_tanh``.
        embedding_scale: factor of the embedding, to be rounded to the weights' dtype.
        query_scale: factor of the scores of queries and keys.
        norm_offset: number that is added to the weights of all norms.
        norms_after: whether the results of both blocks are normed before they are added (Gemma 3).
        windows: the sliding window of each layer, None where the layer sees everything.
        experts: experts in place of the feed-forward block; None without.
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
    local_rope: RopeConfig
    dtype: str
    tie: bool
    query_key_norm: bool
    attention_bias: bool
    output_bias: bool
    feed_forward_bias: bool
    activation: Activation
    embedding_scale: float
    query_scale: float
    norm_offset: float
    norms_after: bool
    windows: Windows
    experts: Experts | None

    @classmethod
    def load(cls, path: Path) -> ModelConfig:
        """The configuration of the model in ``path``, a Hugging Face directory or a GGUF file.

        Raises:
            ModelError: the directory or a file is missing, or a field is missing, wrong or not supported.
        """
        if is_gguf(path):
            return cls.of(Fields(str(path), config_fields(GgufFile.open(path))))
        if not path.is_dir():
            raise ModelError(f"{path} is neither a directory nor a GGUF file")
        return cls.of(Fields.read(path / "config.json"))

    @classmethod
    def of(cls, fields: Fields) -> ModelConfig:
        """The configuration in the fields of a config.json.

        Raises:
            ModelError: a field is missing, wrong or not supported.
        """
        named = architecture(fields)
        family = FAMILIES[named]
        _refuse_unsupported(fields)
        hidden, heads = fields.count("hidden_size"), fields.count("num_attention_heads")
        kv_heads, layers = fields.count("num_key_value_heads", heads), fields.count("num_hidden_layers")
        head_dim = _head_dim(fields, hidden, heads, kv_heads, family)
        rope, local_rope = read_ropes(fields, head_dim, family.theta, family.local_theta)
        biased = fields.flag("attention_bias", False)
        return cls(
            architecture=named,
            vocab_size=fields.count("vocab_size"),
            hidden_size=hidden,
            layers=layers,
            heads=heads,
            kv_heads=kv_heads,
            head_dim=head_dim,
            intermediate_size=fields.count("intermediate_size"),
            context_length=fields.count("max_position_embeddings"),
            norm_eps=fields.positive("rms_norm_eps", family.norm_eps),
            rope=rope,
            local_rope=local_rope,
            dtype=_dtype(fields),
            tie=fields.flag("tie_word_embeddings", family.tie),
            query_key_norm=family.query_key_norm,
            attention_bias=biased or family.qkv_bias,
            output_bias=biased and not family.qkv_bias,
            feed_forward_bias=family.feed_forward_bias and fields.flag("mlp_bias", False),
            activation=activation(fields, family),
            embedding_scale=hidden**0.5 if family.gemma else 1.0,
            query_scale=(fields.positive("query_pre_attn_scalar", 256) if family.gemma else head_dim) ** -0.5,
            norm_offset=1.0 if family.gemma else 0.0,
            norms_after=family.gemma,
            windows=family.windows(fields, layers),
            experts=family.experts(fields, layers),
        )

    def rope_of(self, layer: int) -> RopeConfig:
        """The rotary positions of a layer."""
        return self.rope if self.windows[layer] is None else self.local_rope

    def has_experts(self, layer: int) -> bool:
        """Whether a layer has experts in place of the feed-forward block."""
        return self.experts is not None and self.experts.layers[layer]

    @property
    def row_weights(self) -> float:
        """Weights that multiply a row that draws a token: those of all layers and of the output."""
        return self.layers * self.layer_weights + self.hidden_size * self.vocab_size

    @property
    def layer_weights(self) -> float:
        """Weights of a layer that multiply a row, on the average of the layers; norms, biases and routers left out."""
        heads, shared = self.heads * self.head_dim, self.kv_heads * self.head_dim
        experts = self.experts
        width: float = self.intermediate_size
        if experts is not None:
            share = sum(experts.layers) / self.layers
            width += share * (experts.active * experts.intermediate_size - self.intermediate_size)
        return self.hidden_size * (2 * heads + 2 * shared + 3 * width)


def _refuse_unsupported(fields: Fields) -> None:
    for name in _ABSENT:
        if fields.values.get(name):
            raise fields.wrong(name, "absent: it is not supported")


def _head_dim(fields: Fields, hidden: int, heads: int, kv_heads: int, family: Family) -> int:
    if heads % kv_heads:
        raise fields.wrong("num_key_value_heads", f"a divisor of num_attention_heads, which is {heads}")
    if fields.values.get("head_dim") is None and family.head_dim is not None:
        return family.head_dim
    if fields.values.get("head_dim") is None and hidden % heads:
        raise fields.wrong("hidden_size", f"a multiple of num_attention_heads, which is {heads}, or head_dim given")
    head_dim = fields.count("head_dim", hidden // heads)
    if head_dim % 2:
        raise fields.wrong("head_dim", "even")
    return head_dim


def _dtype(fields: Fields) -> str:
    name = "dtype" if fields.values.get("dtype") is not None else "torch_dtype"
    dtype = fields.text(name, "float32")
    if dtype not in DTYPES:
        raise fields.wrong(name, "one of " + ", ".join(DTYPES))
    return dtype
