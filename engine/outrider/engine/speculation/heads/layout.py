"""Says what head a directory holds, from its config.json and the names of its tensors.

Layouts: SafeAILab/EAGLE and SpecForge (EAGLE-3), z-lab/dflash and SpecForge (``dflash_config``), deepseek-ai/DeepSpec
(DSpark, all fields at the top), and the library speculators (``speculators_model_type``, ``transformer_layer_config``).

The layouts number the target's layers in two ways. ``eagle_aux_hidden_state_layer_ids`` at the top, and
``aux_hidden_state_layer_ids``, name what enters a layer (vLLM, speculators); the same field inside ``eagle_config``
(SpecForge, SGLang) and ``target_layer_ids`` name what leaves it, which enters the next one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from outrider.engine.errors import ModelError
from outrider.engine.models.config import ModelConfig
from outrider.engine.models.families.rope import read_ropes
from outrider.engine.models.fields import Fields
from outrider.engine.speculation.heads.shape import MARKOV_KINDS, BlockShape, EagleShape, FeatureNorm, HeadShape

Kind = Literal["eagle3", "dflash", "dspark"]
KINDS: tuple[Kind, ...] = ("eagle3", "dflash", "dspark")
_READ = "EAGLE-3, DFlash and DSpark heads can be read"
# What transformers' classes take for fields that are missing: it leaves out those that equal the defaults.
_LLAMA = {"vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32}
_LLAMA |= {"num_attention_heads": 32, "max_position_embeddings": 2048}
_QWEN = {"vocab_size": 151936, "intermediate_size": 22016, "num_key_value_heads": 32, "max_position_embeddings": 32768}
_DEFAULTS: Mapping[str, Mapping[str, int]] = {
    "llama": _LLAMA,
    "qwen2": _LLAMA | _QWEN,
    "qwen3": _LLAMA | _QWEN | {"head_dim": 128},
}
_ABSENT = ("attention_sink_bias", "add_swa_attention_sink_bias", "use_swa", "causal", "is_causal", "use_sliding_window")
"""Fields of attention in other forms, which have to be absent or false."""


@dataclass(frozen=True, slots=True)
class Layout:
    """What a directory holds.

    Attributes:
        kind: kind of head.
        speculators: whether it is laid out as the library speculators does.
        shape: sizes of the head.
    """

    kind: Kind
    speculators: bool
    shape: HeadShape


def canonical(name: str) -> str:
    """A tensor's name as `HeadShape.sizes` has it."""
    return name.removeprefix("model.").replace("midlayer.", "layers.0.")


def read_layout(
    fields: Fields, names: Collection[str], target: ModelConfig, layers: tuple[int, ...] | None = None
) -> Layout:
    """The layout of a directory.

    Args:
        fields: of its config.json.
        names: of its tensors, canonical.
        target: configuration of the target.
        layers: the target's states to read, in place of those that ``fields`` name.

    Raises:
        ModelError: the directory holds no head that can be read, or one of another target.
    """
    kind, speculators = _kind(fields, names)
    decoder = fields.within("transformer_layer_config") if speculators else None
    decoder = _with_defaults(decoder or fields)
    common = _common(fields, decoder, names, target)
    if kind == "eagle3":
        chosen = layers or _eagle_layers(fields, target)
        shape: HeadShape = EagleShape(target_layers=chosen, **common, **_eagle(fields, names, speculators))
    else:
        own = Fields(f"{fields.where}: dflash_config", {**fields.values, **(_within(fields, "dflash_config"))})
        chosen = layers or _block_layers(own, speculators, target)
        shape = BlockShape(target_layers=chosen, **common, **_block(own, names, kind))
    _check(fields, shape, target)
    return Layout(kind, speculators, shape)


def _within(fields: Fields, name: str) -> Mapping[str, Any]:
    inner = fields.within(name)
    return {} if inner is None else inner.values


def _kind(fields: Fields, names: Collection[str]) -> tuple[Kind, bool]:
    values, where = fields.values, fields.where
    if "speculators_model_type" in values or "speculators_config" in values:
        stated = fields.text("speculators_model_type")
        for kind in KINDS:
            if stated == kind:
                return kind, True
        raise ModelError(f"{where} is of a {stated} head in the layout of speculators; {_READ}")
    if "medusa_num_heads" in values:
        raise ModelError(f"{where} is of Medusa heads, which the medusa drafter reads; {_READ}")
    if _has_mtp(values, names):
        raise ModelError(f"{where} is of a model with MTP layers; {_READ}")
    inner = {**values, **_within(fields, "dflash_config")}
    if "dflash_config" in values or ("block_size" in values and "target_layer_ids" in values):
        projector = inner.get("projector_type", "dflash")
        if projector not in ("dflash", "dspark"):
            raise ModelError(f"{where} is of a {projector} head; {_READ}")
        return "dspark" if projector == "dspark" or "markov_rank" in inner else "dflash", False
    if "layers.0.hidden_norm.weight" in names:
        return "eagle3", False
    if {"fc.weight", "layers.0.self_attn.q_proj.weight"} <= set(names):
        raise ModelError(f"{where} is of an EAGLE-1 or EAGLE-2 head; {_READ}")
    raise ModelError(f"{where} and the tensors beside it are of no head that is known; {_READ}")


def _has_mtp(values: Mapping[str, Any], names: Collection[str]) -> bool:
    stated = any(values.get(name) for name in ("num_nextn_predict_layers", "mtp_num_hidden_layers"))
    return stated or any(name.startswith("mtp.") or name.endswith(".eh_proj.weight") for name in names)


def _with_defaults(decoder: Fields) -> Fields:
    kind = decoder.text("model_type", "llama")
    if kind not in _DEFAULTS:
        raise decoder.wrong("model_type", "one of " + ", ".join(_DEFAULTS))
    given = {name: value for name, value in decoder.values.items() if value is not None}
    return Fields(decoder.where, {**_DEFAULTS[kind], **given})


def _common(fields: Fields, decoder: Fields, names: Collection[str], target: ModelConfig) -> dict[str, Any]:
    hidden, heads = decoder.count("hidden_size"), decoder.count("num_attention_heads")
    kv_heads = decoder.count("num_key_value_heads", heads)
    if heads % kv_heads:
        raise decoder.wrong("num_key_value_heads", f"a divisor of num_attention_heads, which is {heads}")
    if decoder.text("hidden_act", "silu") != "silu":
        raise decoder.wrong("hidden_act", "silu")
    attention = "layers.0.self_attn.{}_{}".format
    head_dim, vocabulary = decoder.count("head_dim", hidden // heads), decoder.count("vocab_size")
    return {
        "hidden_size": hidden,
        "target_hidden_size": fields.count("target_hidden_size", hidden),
        "layers": decoder.count("num_hidden_layers"),
        "heads": heads,
        "kv_heads": kv_heads,
        "head_dim": head_dim,
        "intermediate_size": decoder.count("intermediate_size"),
        "norm_eps": decoder.positive("rms_norm_eps", 1e-6),
        "rope": read_ropes(decoder, head_dim, 10000.0, None)[0],
        "vocabulary": vocabulary,
        "draft_vocabulary": fields.count("draft_vocab_size", vocabulary),
        "query_key_norm": attention("q", "norm.weight") in names,
        "attention_bias": attention("q", "proj.bias") in names,
        "output_bias": attention("o", "proj.bias") in names,
        "own_embedding": "embed_tokens.weight" in names,
        "own_output": "lm_head.weight" in names,
    }


def _eagle(fields: Fields, names: Collection[str], speculators: bool) -> dict[str, Any]:
    if speculators and fields.values.get("norm_before_residual") is None:
        raise fields.wrong("norm_before_residual", "true or false")  # the library and vLLM differ in its default
    norm: FeatureNorm = "each" if "fc_norm.0.weight" in names else "all" if "input_norm.weight" in names else "none"
    return {
        "norm_before_residual": fields.flag("norm_before_residual", False),
        "feature_norm": norm,
        "norm_output": fields.flag("norm_output", False),
    }


def _block(own: Fields, names: Collection[str], kind: Kind) -> dict[str, Any]:
    for name in _ABSENT:
        if own.values.get(name):
            raise own.wrong(name, "false: heads with other attention are not supported")
    if "sliding_attention" in (own.values.get("layer_types") or ()):
        raise own.wrong("layer_types", "full_attention for all layers")
    rank = own.count("markov_rank") if own.values.get("markov_rank") else 0
    markov = own.text("markov_head_type", "vanilla")
    if markov not in MARKOV_KINDS:
        raise own.wrong("markov_head_type", "one of " + ", ".join(MARKOV_KINDS))
    confidence = "confidence_head.proj.weight" in names
    size = own.count("block_size")
    from_anchor = own.flag("sample_from_anchor", kind == "dspark")
    if size < 2 and not from_anchor:
        raise own.wrong("block_size", "at least 2")
    return {
        "block_size": size,
        "mask_token": _whole(own, "mask_token_id"),
        "from_anchor": from_anchor,
        "markov_rank": rank,
        "markov_kind": markov,
        "confidence": confidence,
        "confidence_with_markov": confidence and bool(rank) and own.flag("confidence_head_with_markov", False),
    }


def _eagle_layers(fields: Fields, target: ModelConfig) -> tuple[int, ...]:
    name, nested = "eagle_aux_hidden_state_layer_ids", fields.within("eagle_config")
    if fields.values.get(name) is not None:
        return _layers(fields, name, 0, target)
    if nested is not None and nested.values.get(name) is not None:
        return _layers(nested, name, 1, target)
    if fields.values.get("target_layer_ids") is not None:
        return _layers(fields, "target_layer_ids", 1, target)
    default = Fields(f"{fields.where}: by default", {name: [2, target.layers // 2, target.layers - 3]})
    return _layers(default, name, 0, target)


def _block_layers(own: Fields, speculators: bool, target: ModelConfig) -> tuple[int, ...]:
    name = "aux_hidden_state_layer_ids" if speculators else "target_layer_ids"
    return _layers(own, name, 0 if speculators else 1, target)


def _layers(fields: Fields, name: str, offset: int, target: ModelConfig) -> tuple[int, ...]:
    values = fields.values.get(name)
    last = target.layers + 1
    if isinstance(values, list) and values and all(type(value) is int for value in values):
        layers = tuple(value + offset for value in values)
        if list(layers) == sorted(set(layers)) and 0 <= layers[0] <= layers[-1] <= last:
            return layers
    raise fields.wrong(name, f"ascending layers of the target, from {-offset} to {last - offset}")


def _whole(fields: Fields, name: str) -> int:
    value = fields.values.get(name)
    if type(value) is not int or value < 0:
        raise fields.wrong(name, "a whole number")
    return value


def _check(fields: Fields, shape: HeadShape, target: ModelConfig) -> None:
    """Refuses a head of another target."""
    hidden, vocabulary, where = target.hidden_size, target.vocab_size, fields.where
    if shape.vocabulary != vocabulary:
        raise ModelError(f"{where} is of a head for {shape.vocabulary} ids; the target has {vocabulary}")
    if shape.target_hidden_size != hidden:
        raise ModelError(f"{where} is of a head for states of {shape.target_hidden_size}; the target's have {hidden}")
    if shape.hidden_size != hidden and not (shape.own_embedding and shape.own_output):
        width = shape.hidden_size
        raise ModelError(
            f"{where}: hidden_size is {width}; without an embedding and output of its own it must be {hidden}"
        )
    if shape.draft_vocabulary > vocabulary or (shape.draft_vocabulary < vocabulary and not shape.own_output):
        raise fields.wrong("draft_vocab_size", f"at most {vocabulary}, and absent without lm_head.weight")
    if isinstance(shape, BlockShape) and shape.mask_token >= vocabulary:
        raise ModelError(f"{where}: mask_token_id is {shape.mask_token}; it must be below {vocabulary}")
