"""Heads in GGUF are those of the directories that they were converted from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType, GGUFWriter
from outrider.engine.errors import ModelError
from outrider.engine.models.config import ModelConfig
from outrider.engine.speculation.heads.files import load_head
from outrider.engine.store import drafter_of
from torch import Tensor

from tests.engine.models.gguf.files import add_tensor, add_words, write_file
from tests.engine.speculation.heads.published import (
    DRAFTED,
    EPS,
    HEADS,
    HIDDEN,
    INNER,
    KV_HEADS,
    MASK,
    SIZE,
    TARGET,
    THETA,
    VOCABULARY,
    Published,
    dflash,
    dspark,
    eagle3,
)
from tests.toy_model import save_toy

F32, BF16, Q8_0 = GGMLQuantizationType.F32, GGMLQuantizationType.BF16, GGMLQuantizationType.Q8_0
Change = Callable[[GGUFWriter], None]
INSIDE = {
    "input_layernorm": "attn_norm",
    "hidden_norm": "attn_norm_2",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
OUTSIDE = {
    "hidden_norm": "enc.output_norm",
    "norm": "output_norm",
    "lm_head": "output",
    "embed_tokens": "token_embd",
    "markov_head.markov_w1": "markov_w1",
    "markov_head.markov_w2": "markov_w2",
    "confidence_head.proj": "conf_proj",
}


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> ModelConfig:
    return ModelConfig.load(save_toy(tmp_path_factory.mktemp("models") / "toy", VOCABULARY))


def own_name(name: str) -> str:
    """The name that llama.cpp's converter gives a tensor."""
    whole, kind = name.rsplit(".", 1)
    if whole.startswith(("midlayer.", "layers.")):
        index, part = ("0", whole.split(".", 1)[1]) if whole.startswith("midlayer.") else whole.split(".", 2)[1:]
        return f"blk.{index}.{INSIDE[part]}.{kind}"
    return f"{OUTSIDE.get(whole, whole)}.{kind}"


def permuted(weight: Tensor, heads: int) -> Tensor:
    """Rows of queries or keys in the order of ggml's rotary positions for Llama's models."""
    return weight.view(heads, 2, len(weight) // heads // 2, -1).transpose(1, 2).reshape(weight.shape)


def convert(path: Path, head: Published, kind: GGMLQuantizationType = F32, more: Change | None = None) -> Path:
    """A file as llama.cpp's converter writes it."""
    eagle, config = "draft_vocab_size" in head.config, head.config
    architecture = "eagle3" if eagle else "dflash"

    def fill(writer: GGUFWriter) -> None:
        writer.add_context_length(512)
        writer.add_embedding_length(HIDDEN)
        writer.add_block_count(config["num_hidden_layers"])
        writer.add_feed_forward_length(INNER)
        writer.add_head_count(HEADS)
        writer.add_head_count_kv(KV_HEADS)
        writer.add_key_length(SIZE)
        writer.add_value_length(SIZE)
        writer.add_layer_norm_rms_eps(EPS)
        writer.add_rope_freq_base(THETA)
        writer.add_array(f"{architecture}.target_layers", list(head.layers))
        add_words(writer, VOCABULARY)
        if eagle:
            writer.add_uint32("eagle3.target_hidden_size", TARGET)
            writer.add_bool("eagle3.norm_before_residual", False)
        else:
            writer.add_uint32("dflash.block_size", config["block_size"])
            writer.add_uint32("tokenizer.ggml.mask_token_id", MASK)
            if "markov_rank" in config:
                writer.add_bool("dflash.sample_from_anchor", True)
        for name, tensor in head.tensors.items():
            if name == "d2t":
                writer.add_tensor("d2t", (tensor + torch.arange(DRAFTED)).numpy().astype(np.int64))
            elif name.endswith(("q_proj.weight", "k_proj.weight")) and eagle:
                heads = HEADS if "q_proj" in name else KV_HEADS
                add_tensor(writer, own_name(name), permuted(tensor, heads).contiguous(), kind)
            elif name != "t2d":
                add_tensor(writer, own_name(name), tensor, kind if tensor.shape[-1] % 32 == 0 else F32)
        if more is not None:
            more(writer)

    return write_file(path, architecture, fill)


@pytest.mark.parametrize(("make", "kind"), [(eagle3, "eagle3"), (dflash, "dflash"), (dspark, "dspark")])
def test_a_file_holds_what_the_directory_holds(target: ModelConfig, tmp_path: Path, make: Any, kind: str) -> None:
    published = make()
    there, layout = load_head(published.save(tmp_path / "directory"), target)
    here, same = load_head(convert(tmp_path / "head.gguf", published), target)
    assert drafter_of(tmp_path / "head.gguf") == "head"
    assert same.kind == layout.kind == kind
    assert same.shape.norm_eps == pytest.approx(layout.shape.norm_eps)
    assert replace(same.shape, norm_eps=layout.shape.norm_eps) == layout.shape
    assert here.tensors.keys() == there.tensors.keys()
    for name, tensor in there.tensors.items():
        assert torch.equal(here.tensors[name], tensor), name
    assert (here.targets is None) == (there.targets is None)
    assert here.targets is None or (there.targets is not None and torch.equal(here.targets, there.targets))


@pytest.mark.parametrize(("kind", "off"), [(BF16, 0.01), (Q8_0, 0.02)])
def test_smaller_numbers_are_decoded(
    target: ModelConfig, tmp_path: Path, kind: GGMLQuantizationType, off: float
) -> None:
    published = eagle3()
    there, _ = load_head(published.save(tmp_path / "directory"), target)
    here, _ = load_head(convert(tmp_path / "head.gguf", published, kind), target)
    for name, tensor in there.tensors.items():
        assert (here.tensors[name] - tensor).abs().max() <= off * tensor.abs().max(), name


def sets(key: str, value: Any) -> Change:
    def change(writer: GGUFWriter) -> None:
        writer.kv_data[0].pop(key, None)
        add = writer.add_array if isinstance(value, list) else writer.add_uint32
        add(key, value)

    return change


WRONG: list[tuple[Any, Change, str]] = [
    (dflash, sets("dflash.attention.sliding_window", 64), "sliding_window is 64; it must be absent"),
    (dspark, sets("tokenizer.ggml.mask_token_id", 77), "mask_token_id is 77"),
    (eagle3, sets("eagle3.target_layers", [2, 1]), "must be ascending layers"),
    (eagle3, sets("eagle3.embedding_length", 64), r"shape \[32, 96\]; by its metadata"),
    (eagle3, lambda writer: writer.add_tensor("more", np.ones(3, np.float32)), "a tensor more that eagle3 heads have"),
]


@pytest.mark.parametrize(("make", "more", "why"), WRONG)
def test_what_a_file_says_has_to_fit(target: ModelConfig, tmp_path: Path, make: Any, more: Change, why: str) -> None:
    with pytest.raises(ModelError, match=why):
        load_head(convert(tmp_path / "head.gguf", make(), more=more), target)


def test_models_and_broken_files_are_refused(target: ModelConfig, tmp_path: Path) -> None:
    model = write_file(tmp_path / "model.gguf", "llama", add_words)
    with pytest.raises(ModelError, match=r"general\.architecture is 'llama'; it must be eagle3 or dflash"):
        load_head(model, target)
    whole = convert(tmp_path / "head.gguf", dspark())
    whole.write_bytes(whole.read_bytes()[:-100])
    with pytest.raises(ModelError, match=r"head\.gguf"):
        load_head(whole, target)
