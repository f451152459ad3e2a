"""What a head is: sizes, the target's states that it reads, and the names and shapes of its tensors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from outrider.engine.models.families.rope import RopeConfig

MarkovKind = Literal["vanilla", "gated", "rnn"]
FeatureNorm = Literal["none", "each", "all"]
MARKOV_KINDS: tuple[MarkovKind, ...] = ("vanilla", "gated", "rnn")
Sizes = dict[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadShape:
    """What all heads have.

    Attributes:
        hidden_size: width of the head's residual stream.
        target_hidden_size: width of the target's.
        target_layers: the target's states that the head reads, as `outrider.engine.speculation.Traits` counts them.
        layers: decoder layers of the head.
        vocabulary: ids of the target.
        draft_vocabulary: ids that the head guesses; those of the target if equal to ``vocabulary``.
        query_key_norm: whether each head's queries and keys are normed.
        attention_bias: whether queries, keys and values have a bias.
        output_bias: whether the attention's output has a bias.
        own_embedding: whether the head brings an embedding; without, it needs the target's.
        own_output: whether the head brings an output layer; without, it needs the target's.
    """

    hidden_size: int
    target_hidden_size: int
    target_layers: tuple[int, ...]
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate_size: int
    norm_eps: float
    rope: RopeConfig
    vocabulary: int
    draft_vocabulary: int
    query_key_norm: bool = False
    attention_bias: bool = False
    output_bias: bool = False
    own_embedding: bool = False
    own_output: bool = False

    def sizes(self) -> Sizes:
        """Shapes of all tensors of floating point, by name."""
        hidden, width = self.hidden_size, len(self.target_layers) * self.target_hidden_size
        found: Sizes = {"fc.weight": (hidden, width), "norm.weight": (hidden,)}
        for index in range(self.layers):
            found |= {f"layers.{index}.{name}": size for name, size in self._layer_sizes(index).items()}
        if self.own_embedding:
            found["embed_tokens.weight"] = self.vocabulary, hidden
        if self.own_output:
            found["lm_head.weight"] = self.draft_vocabulary, hidden
        return found

    def _inputs(self, index: int) -> int:
        """Width of what the attention of layer ``index`` reads."""
        return self.hidden_size

    def _layer_sizes(self, index: int) -> Sizes:
        hidden, inner = self.hidden_size, self.intermediate_size
        wide, narrow, inputs = self.heads * self.head_dim, self.kv_heads * self.head_dim, self._inputs(index)
        found: Sizes = {
            "input_layernorm.weight": (hidden,),
            "self_attn.q_proj.weight": (wide, inputs),
            "self_attn.k_proj.weight": (narrow, inputs),
            "self_attn.v_proj.weight": (narrow, inputs),
            "self_attn.o_proj.weight": (hidden, wide),
            "post_attention_layernorm.weight": (hidden,),
            "mlp.gate_proj.weight": (inner, hidden),
            "mlp.up_proj.weight": (inner, hidden),
            "mlp.down_proj.weight": (hidden, inner),
        }
        if self.query_key_norm:
            found |= {f"self_attn.{name}_norm.weight": (self.head_dim,) for name in "qk"}
        if self.attention_bias:
            found |= {
                f"self_attn.{name}_proj.bias": (size,) for name, size in zip("qkv", (wide, narrow, narrow), strict=True)
            }
        if self.output_bias:
            found["self_attn.o_proj.bias"] = (hidden,)
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class EagleShape(HeadShape):
    """An EAGLE-3 head (Li et al. 2025, arXiv 2503.01840), or one of its 3.1.

    Attributes:
        norm_before_residual: whether the residual stream begins with the normed features.
        feature_norm: how the target's states are normed before they are joined: not, ``each`` of them (3.1's
            ``fc_norm``), or ``all`` together (``norm_before_fc`` of the library speculators).
        norm_output: whether the next step gets the state after the last norm (3.1), not the one before.
    """

    norm_before_residual: bool = False
    feature_norm: FeatureNorm = "none"
    norm_output: bool = False

    def sizes(self) -> Sizes:
        """See `HeadShape`."""
        found = HeadShape.sizes(self) | {"layers.0.hidden_norm.weight": (self.hidden_size,)}
        count = len(self.target_layers)
        if self.feature_norm == "each":
            found |= {f"fc_norm.{place}.weight": (self.target_hidden_size,) for place in range(count)}
        if self.feature_norm == "all":
            found["input_norm.weight"] = (count * self.target_hidden_size,)
        return found

    def _inputs(self, index: int) -> int:
        """The first layer reads the token's embedding beside the features."""
        return self.hidden_size if index else 2 * self.hidden_size


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockShape(HeadShape):
    """A head that guesses a block in one pass: DFlash (arXiv 2602.06036), or DSpark (arXiv 2607.05147) on top.

    Attributes:
        block_size: rows of a block; the first holds the newest token, the others ``mask_token``.
        from_anchor: whether row k guesses the token k + 1 places behind the newest (DSpark); without, the first row
            guesses nothing and row k the token k places behind (DFlash).
        markov_rank: rank of the correction by the token before each guess; 0 for none.
        markov_kind: its form.
        confidence: whether a head says how likely each guess is accepted.
        confidence_with_markov: whether that head also reads the token before the guess.
    """

    block_size: int
    mask_token: int
    from_anchor: bool = False
    markov_rank: int = 0
    markov_kind: MarkovKind = "vanilla"
    confidence: bool = False
    confidence_with_markov: bool = False

    @property
    def guesses(self) -> int:
        """Guesses of a block."""
        return self.block_size if self.from_anchor else self.block_size - 1

    def sizes(self) -> Sizes:
        """See `HeadShape`."""
        found, rank = HeadShape.sizes(self) | {"hidden_norm.weight": (self.hidden_size,)}, self.markov_rank
        if rank:
            found["markov_head.markov_w1.weight"] = self.vocabulary, rank
            found["markov_head.markov_w2.weight"] = self.draft_vocabulary, rank
            name, inputs, outputs = {
                "vanilla": ("", 0, 0),
                "gated": ("gate_proj", self.hidden_size + rank, rank),
                "rnn": ("joint_proj", self.hidden_size + 2 * rank, 3 * rank),
            }[self.markov_kind]
            if name:
                found |= {f"markov_head.{name}.weight": (outputs, inputs), f"markov_head.{name}.bias": (outputs,)}
        if self.confidence:
            inputs = self.hidden_size + (rank if self.confidence_with_markov else 0)
            found |= {"confidence_head.proj.weight": (1, inputs), "confidence_head.proj.bias": (1,)}
        return found
