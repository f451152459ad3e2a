"""Models of every family, written to GGUF, against transformers' own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from gguf import GGMLQuantizationType, GGUFWriter
from outrider.engine.errors import ModelError
from outrider.engine.models.config import ModelConfig
from outrider.engine.models.fingerprint import page_fingerprint
from outrider.engine.models.gguf.checkpoint import GgufCheckpoint
from outrider.engine.models.gguf.config import config_fields
from outrider.engine.models.gguf.header import GgufFile
from outrider.engine.models.llama import LlamaModel
from outrider.native.quantized import dequantized
from transformers import Gemma3ForCausalLM, Gemma3TextConfig, PreTrainedModel

from tests.engine.models.checkpoints import FAMILIES, SHAPE, save, tokens
from tests.engine.models.gguf.files import (
    ARCHITECTURES,
    F32,
    add_sizes,
    add_tensor,
    add_words,
    file_tensors,
    rounded,
    write_file,
    write_model,
)
from tests.engine.models.runs import whole

Kind = GGMLQuantizationType
_WIDE: dict[str, Any] = {"hidden_size": 96, "intermediate_size": 160, "num_attention_heads": 6}
_KINDS = [Kind.F16, Kind.BF16, Kind.Q8_0, Kind.Q5_0, Kind.Q5_1, Kind.Q4_0, Kind.Q4_1]
_FAMILIES = [family for family in FAMILIES if FAMILIES[family][1].__name__ in ARCHITECTURES]


def gemma(layers: int = 7) -> PreTrainedModel:
    """A small Gemma 3 with layers of both kinds."""
    sizes = SHAPE | {"num_hidden_layers": layers, "head_dim": 16, "sliding_window": 8}
    torch.manual_seed(3)
    return Gemma3ForCausalLM(Gemma3TextConfig(**sizes, query_pre_attn_scalar=16)).eval()


def logits_of(model: PreTrainedModel, ids: torch.Tensor) -> torch.Tensor:
    with torch.inference_mode():
        found: torch.Tensor = model(ids[None]).logits[0]
    return found


def make_wide(family: str) -> PreTrainedModel:
    """A model of a family whose rows are blocks of 32 elements."""
    config, model, fields = FAMILIES[family]
    torch.manual_seed(1)
    return model(config(**SHAPE | _WIDE | fields)).eval()


@pytest.mark.parametrize("family", _FAMILIES)
def test_logits_are_those_of_transformers(family: str, tmp_path: Path) -> None:
    theirs = save(family, tmp_path)
    ours = LlamaModel.load(write_model(tmp_path / "model.gguf", theirs), dtype="float32")
    ids = tokens(40)
    torch.testing.assert_close(whole(ours, ids), logits_of(theirs, ids), rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("family", ["qwen 2", "gemma 3"])
def test_a_family_that_is_tied_has_the_output_layer_of_the_file(family: str, tmp_path: Path) -> None:
    theirs = save(family, tmp_path)
    theirs.config.tie_word_embeddings = False
    theirs.lm_head.weight = torch.nn.Parameter(torch.flip(theirs.lm_head.weight, [0]))
    ours = LlamaModel.load(write_model(tmp_path / "model.gguf", theirs), dtype="float32")
    torch.testing.assert_close(whole(ours, tokens(40)), logits_of(theirs, tokens(40)), rtol=2e-4, atol=2e-4)


def test_layers_of_gemma_may_be_given_one_by_one(tmp_path: Path) -> None:
    theirs = gemma(layers=3)
    theirs.config.layer_types = ["full_attention", "sliding_attention", "full_attention"]
    ours = config_fields(GgufFile.open(write_model(tmp_path / "model.gguf", theirs)))
    assert ours["layer_types"] == theirs.config.layer_types


@pytest.mark.parametrize("family", _FAMILIES)
def test_the_configuration_is_that_of_the_directory(family: str, tmp_path: Path) -> None:
    theirs = save(family, tmp_path)
    ours, directory = ModelConfig.load(write_model(tmp_path / "model.gguf", theirs)), ModelConfig.load(tmp_path)
    for name in ("vocab_size", "hidden_size", "layers", "heads", "kv_heads", "head_dim", "intermediate_size", "tie"):
        assert getattr(ours, name) == getattr(directory, name)
    for name in ("query_key_norm", "attention_bias", "output_bias", "feed_forward_bias", "dtype"):
        assert getattr(ours, name) == getattr(directory, name)
    assert ours.context_length == directory.context_length
    assert ours.norm_eps == pytest.approx(directory.norm_eps)
    assert (ours.rope.theta, ours.rope.kind) == (directory.rope.theta, directory.rope.kind)
    assert ours.rope.factor == pytest.approx(directory.rope.factor)


@pytest.mark.parametrize("kind", _KINDS, ids=lambda kind: kind.name)
@pytest.mark.parametrize("family", ["llama 3", "qwen 2"])
def test_logits_are_those_of_the_rounded_weights(family: str, kind: Kind, tmp_path: Path) -> None:
    theirs = make_wide(family)
    ours = LlamaModel.load(write_model(tmp_path / "model.gguf", theirs, kind), dtype="float32")
    with torch.no_grad():
        for weight in theirs.parameters():
            if weight.ndim == 2:
                weight.copy_(rounded(weight, kind))
    ids = tokens(24)
    expected = logits_of(theirs, ids)
    difference = (whole(ours, ids) - expected).square().mean().sqrt()
    assert difference < 0.05 * expected.std()


@pytest.mark.parametrize("family", sorted({*_FAMILIES, "gemma 3"}))
def test_tensors_have_the_names_and_the_contents_of_the_directory(family: str, tmp_path: Path) -> None:
    theirs = gemma() if family == "gemma 3" else save(family, tmp_path)
    checkpoint = GgufCheckpoint(GgufFile.open(write_model(tmp_path / "model.gguf", theirs)))
    for name, tensor in theirs.state_dict().items():
        if name == "lm_head.weight" and theirs.config.tie_word_embeddings:
            continue
        taken = checkpoint.take(name, tensor.shape)
        assert isinstance(taken, torch.Tensor)
        torch.testing.assert_close(taken, tensor, rtol=0, atol=2e-7 if family == "gemma 3" else 0)
    checkpoint.finish()


@pytest.mark.parametrize("kind", [Kind.F32, Kind.Q8_0])
def test_rows_of_queries_and_keys_stand_in_the_order_of_the_directory(kind: Kind, tmp_path: Path) -> None:
    theirs = make_wide("llama 3")
    checkpoint = GgufCheckpoint(GgufFile.open(write_model(tmp_path / "model.gguf", theirs, kind)))
    for part in ("q", "k"):
        name = f"model.layers.1.self_attn.{part}_proj.weight"
        weight = theirs.state_dict()[name]
        taken = checkpoint.take(name, weight.shape)
        numbers = taken if isinstance(taken, torch.Tensor) else dequantized(taken, torch.float32)
        assert torch.equal(numbers, rounded(weight, kind))
    assert checkpoint.quantized == (kind != Kind.F32)


def test_gemma_has_the_fields_of_its_directory(tmp_path: Path) -> None:
    theirs = gemma()
    ours = config_fields(GgufFile.open(write_model(tmp_path / "model.gguf", theirs)))
    saved = theirs.config.to_dict()
    for name in ("layer_types", "sliding_window", "query_pre_attn_scalar", "hidden_activation", "head_dim"):
        assert ours[name] == saved[name]
    assert ours["rope_parameters"]["full_attention"]["rope_theta"] == 1_000_000.0
    assert ours["rope_parameters"]["sliding_attention"] == {"rope_type": "default", "rope_theta": 10_000.0}
    assert ours["tie_word_embeddings"]


def spoilt(path: Path, change: Any, *left_out: str) -> GgufFile:
    """A small Qwen 2 whose file also has what ``change`` adds."""
    theirs = make_wide("qwen 2")

    def fill(writer: GGUFWriter) -> None:
        add_sizes(writer, "qwen2", theirs.config)
        for key in left_out:
            writer.kv_data[0].pop(key)
        add_words(writer)
        for name, tensor in file_tensors("qwen2", theirs).items():
            add_tensor(writer, name, tensor, F32)
        change(writer)

    return GgufFile.open(write_file(path / "model.gguf", "qwen2", fill))


def setting(name: str, value: Any) -> Any:
    """Sets a key of a file; None leaves it out."""

    def change(writer: GGUFWriter) -> None:
        writer.kv_data[0].pop(name, None)
        if value is not None:
            writer.add_key_value(name, *value)

    return change


def test_scaling_of_positions_is_read(tmp_path: Path) -> None:
    def yarn(writer: GGUFWriter) -> None:
        writer.add_string("qwen2.rope.scaling.type", "yarn")
        writer.add_float32("qwen2.rope.scaling.factor", 4.0)
        writer.add_uint32("qwen2.rope.scaling.original_context_length", 32768)
        writer.add_float32("qwen2.rope.scaling.yarn_beta_fast", 16.0)

    assert config_fields(spoilt(tmp_path, yarn))["rope_parameters"] == {
        "rope_theta": 10000.0,
        "rope_type": "yarn",
        "factor": 4.0,
        "original_max_position_embeddings": 32768,
        "beta_fast": 16.0,
    }


@pytest.mark.parametrize("none", [0, 2**32 - 1])
def test_a_window_that_says_none_is_none(none: int, tmp_path: Path) -> None:
    fields = config_fields(spoilt(tmp_path, setting("qwen2.attention.sliding_window", (none, _U32))))
    assert fields["architectures"] == ["Qwen2ForCausalLM"]
    assert "sliding_window" not in fields


def test_sizes_that_a_file_lists_for_each_layer_are_one_size_if_they_are_the_same(tmp_path: Path) -> None:
    def change(sizes: list[int]) -> Any:
        def apply(writer: GGUFWriter) -> None:
            writer.kv_data[0].pop("qwen2.feed_forward_length")
            writer.add_array("qwen2.feed_forward_length", sizes)

        return apply

    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    assert config_fields(spoilt(tmp_path / "a", change([176, 176])))["intermediate_size"] == 176
    with pytest.raises(ModelError, match=r"qwen2.feed_forward_length"):
        config_fields(spoilt(tmp_path / "b", change([176, 96])))


def wrong_factors(writer: GGUFWriter) -> None:
    add_tensor(writer, "rope_freqs.weight", torch.tensor([1.0, 3.0, 2.0, 8.0, 8.0, 8.0, 8.0, 8.0]), F32)


def more_of(name: str) -> Any:
    return lambda writer: add_tensor(writer, name, torch.ones(4, 4), F32)


_U32, _F32, _TEXT = 4, 6, 8


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (setting("general.architecture", ("mamba", _TEXT)), "general.architecture is 'mamba'; it must be one of llama"),
        (setting("general.architecture", None), "general.architecture is missing; it must be a string"),
        (setting("qwen2.block_count", None), "qwen2.block_count is missing; it must be a whole number from 1"),
        (setting("qwen2.block_count", (2**32 - 1, _U32)), "qwen2.block_count is 4294967295; it must be a whole number"),
        (setting("qwen2.block_count", (5000, _U32)), "qwen2.block_count is 5000; it must be at most the number of"),
        (setting("qwen2.context_length", (0, _U32)), "qwen2.context_length is 0; it must be a whole number from 1"),
        (setting("qwen2.context_length", ("9" * 99, _TEXT)), "qwen2.context_length is '9{59}...; it must be a whole"),
        (setting("qwen2.attention.head_count_kv", (4, _U32)), "num_key_value_heads is 4; it must be a divisor of"),
        (setting("qwen2.attention.layer_norm_rms_epsilon", (float("nan"), _F32)), "epsilon is nan; it must be"),
        (setting("qwen2.rope.freq_base", (float("inf"), _F32)), "qwen2.rope.freq_base is inf; it must be a number"),
        (setting("qwen2.embedding_length", (64, _U32)), r"token_embd.weight has shape \[67, 96\]; it must be \[tok"),
        (setting("qwen2.attention.value_length", (8, _U32)), "qwen2.attention.value_length is 8; it must be 16"),
        (setting("qwen2.expert_count", (8, _U32)), "qwen2.expert_count is 8; it must be 0 or absent"),
        (setting("qwen2.rope.scaling.type", ("longrope", _TEXT)), "rope.scaling.type is 'longrope'; it must be one of"),
        (setting("qwen2.rope.scaling.type", ("yarn", _TEXT)), "qwen2.rope.scaling.factor is missing; it must be a num"),
        (setting("split.count", (3, _U32)), "split.count is 3; it must be 1 or absent: parts of a model have to be"),
        (wrong_factors, "rope_freqs.weight holds other factors than Llama 3.1's scaling, the only one allowed"),
    ],
)  # fmt: skip
def test_a_missing_or_wrong_key_is_named(change: Any, message: str, tmp_path: Path) -> None:
    file = spoilt(tmp_path, change)
    with pytest.raises(ModelError, match=message) as raised:
        ModelConfig.load(file.path)
    assert "\n" not in str(raised.value)
    assert str(file.path) in str(raised.value)


def test_tensors_without_use_or_of_another_shape_are_named(tmp_path: Path) -> None:
    checkpoint = GgufCheckpoint(spoilt(tmp_path, more_of("blk.0.attn_qkv.weight")))
    with pytest.raises(ModelError, match=r"model.layers.9.mlp.up_proj.weight"):
        checkpoint.take("model.layers.9.mlp.up_proj.weight", [1, 1])
    with pytest.raises(ModelError, match=r"blk.0.ffn_up.weight .*\[160, 96\].* \[9\]"):
        checkpoint.take("model.layers.0.mlp.up_proj.weight", [9])
    with pytest.raises(ModelError, match=r"blk.0.attn_qkv.weight"):
        checkpoint.finish(ignored=["weight.nothing", "proj.weight", "proj.bias", "norm.weight", "tokens.weight"])


def test_a_tensor_of_another_type_is_refused_by_name(tmp_path: Path) -> None:
    def change(writer: GGUFWriter) -> None:
        writer.add_tensor("blk.0.extra.weight", torch.zeros(4, 84).byte().numpy(), raw_dtype=Kind.Q2_K)

    with pytest.raises(ModelError, match=r"blk.0.extra.weight .*Q2_K"):
        GgufCheckpoint(spoilt(tmp_path, change))


def test_pages_of_another_file_have_another_fingerprint(tmp_path: Path) -> None:
    prints = set()
    for kind in (Kind.Q8_0, Kind.Q5_0):
        path = write_model(tmp_path / "model.gguf", make_wide("qwen 2"), kind)
        model = LlamaModel.load(path)
        prints.add(page_fingerprint(path, model, model.new_pool(2, 8), quantization="none", determinism="fast"))
    assert len(prints) == 2
