"""What is no head that can be read, or one of another target, is refused with one sentence that says why."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from outrider.engine.errors import ModelError
from outrider.engine.models.fields import Fields
from outrider.engine.models.llama import LlamaModel
from outrider.engine.speculation.heads.files import load_head
from outrider.engine.speculation.heads.layout import read_layout
from outrider.engine.speculation.heads.shape import BlockShape
from safetensors.torch import save_file
from transformers import Qwen3Config

from tests.engine.speculation.heads.published import (
    DRAFTED,
    HIDDEN,
    VOCABULARY,
    Published,
    dflash,
    dflash_of_speculators,
    dspark,
    dspark_of_specforge,
    eagle3,
    eagle3_of_speculators,
    eagle31,
)
from tests.toy_model import save_toy

Make = Callable[[], Published]
DFLASH = {"mask_token_id": 49, "target_layer_ids": [0, 1]}


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> LlamaModel:
    return LlamaModel.load(save_toy(tmp_path_factory.mktemp("models") / "toy", VOCABULARY), dtype="float32")


def refusal(directory: Path, target: LlamaModel) -> str:
    with pytest.raises(ModelError) as caught:
        load_head(directory, target.config)
    assert "\n" not in str(caught.value)
    return str(caught.value)


CONFIGS: list[tuple[Make, dict[str, Any], str]] = [
    (eagle3, {"vocab_size": 51}, "a head for 51 ids; the target has 50"),
    (eagle3, {"target_hidden_size": 48}, "a head for states of 48; the target's have 32"),
    (
        dflash,
        {"hidden_size": 48, "target_hidden_size": 32},
        "hidden_size is 48; without an embedding and output",
    ),
    (eagle3, {"eagle_aux_hidden_state_layer_ids": [0, 1, 9]}, "ascending layers of the target, from 0 to 3"),
    (eagle3, {"eagle_aux_hidden_state_layer_ids": "absent"}, r"by default: eagle_aux.* is \[2, 1, -1\]"),
    (
        eagle3,
        {"eagle_aux_hidden_state_layer_ids": [0, 1]},
        r"fc.weight has shape \[32, 96\]; by config.json it",
    ),
    (eagle3, {"num_attention_heads": 3}, "num_key_value_heads is 2; it must be a divisor"),
    (eagle3, {"draft_vocab_size": 31}, r"lm_head.weight has shape \[30, 32\]; by config.json"),
    (eagle3, {"hidden_act": "gelu"}, 'hidden_act is "gelu"; it must be silu'),
    (eagle3, {"model_type": "gemma4_text"}, "one of llama, qwen2, qwen3"),
    (eagle3, {"num_hidden_layers": 2}, "no tensor layers.1.input_layernorm.weight"),
    (
        eagle31,
        {"num_nextn_predict_layers": 1},
        "of a model with MTP layers; EAGLE-3, DFlash and DSpark",
    ),
    (eagle31, {"medusa_num_heads": 4}, "of Medusa heads, which the medusa drafter reads"),
    (eagle3_of_speculators, {"norm_before_residual": "absent"}, "norm_before_residual is missing; it must be true or"),
    (eagle3_of_speculators, {"speculators_model_type": "peagle"}, "of a peagle head in the layout of speculators"),
    (eagle3_of_speculators, {"speculators_model_type": "mtp"}, "of a mtp head in the layout of speculators"),
    (dflash, {"block_size": 1}, "block_size is 1; it must be at least 2"),
    (dflash, {"dflash_config": {**DFLASH, "projector_type": "domino"}}, "of a domino head"),
    (dflash, {"dflash_config": {**DFLASH, "mask_token_id": 50}}, "mask_token_id is 50; it must be below 50"),
    (
        dflash,
        {"dflash_config": {**DFLASH, "mask_token_id": None}},
        "mask_token_id is missing; it must be a whole",
    ),
    (dflash, {"dflash_config": {**DFLASH, "target_layer_ids": [1, 0]}}, "ascending layers of the target, from -1 to 2"),
    (dflash, {"dflash_config": {**DFLASH, "use_swa": True}}, "use_swa is true; it must be false"),
    (dflash, {"layer_types": ["sliding_attention", "full_attention"]}, "it must be full_attention for all layers"),
    (dflash, {"draft_vocab_size": 30}, "draft_vocab_size is 30; it must be at most 50, and absent without lm_head"),
    (dspark, {"markov_head_type": "lstm"}, 'markov_head_type is "lstm"; it must be one of vanilla, gated, rnn'),
    (dspark, {"markov_rank": 0}, "a tensor markov_head.markov_w1.weight that dspark heads have no use for"),
    (dspark, {"markov_rank": 7}, r"markov_w1.weight has shape \[50, 6\]; by config.json it must be \[50, 7\]"),
]


@pytest.mark.parametrize(("make", "changes", "why"), CONFIGS)
def test_a_config_that_does_not_fit_is_refused(
    target: LlamaModel, tmp_path: Path, make: Make, changes: dict[str, Any], why: str
) -> None:
    directory = make().save(tmp_path, **changes)
    with pytest.raises(ModelError, match=why):
        load_head(directory, target.config)


def test_files_that_are_damaged_or_of_another_kind_are_refused(target: LlamaModel, tmp_path: Path) -> None:
    whole = eagle3().save(tmp_path / "whole")
    (whole / "model.safetensors").write_bytes((whole / "model.safetensors").read_bytes()[:-100])
    assert "is not a whole safetensors file" in refusal(whole, target)
    pickled = dspark().save(tmp_path / "pickled")
    (pickled / "model.safetensors").unlink()
    torch.save(dspark().tensors, pickled / "pytorch_model.bin")
    assert "pytorch_model.bin is a pickle, which is never loaded" in refusal(pickled, target)
    dflash().save(tmp_path / "text")
    (tmp_path / "text" / "config.json").write_text("{")
    assert "is not JSON" in refusal(tmp_path / "text", target)
    assert "config.json cannot be read" in refusal(tmp_path / "nowhere", target)


def test_other_tensors_are_named_or_refused(target: LlamaModel, tmp_path: Path) -> None:
    def saved(name: str, config: dict[str, Any], tensors: dict[str, torch.Tensor]) -> str:
        return refusal(Published(config, tensors, ()).save(tmp_path / name), target)

    one, head = torch.ones(1, 1), eagle3()
    config = {name: value for name, value in head.config.items() if not name.startswith("eagle")}
    assert "of a model with MTP layers" in saved("a", config, {"mtp.layers.0.mlp.up_proj.weight": one})
    assert "of a model with MTP layers" in saved("b", config, {"model.layers.9.eh_proj.weight": one})
    first = {"fc.weight": one, "layers.0.self_attn.q_proj.weight": one.clone()}
    assert "of an EAGLE-1 or EAGLE-2 head" in saved("c", config, first)
    assert "of no head that is known" in saved("d", config, {"model.embed_tokens.weight": one})
    assert "a tensor mask_hidden that eagle3 heads have no use for" in saved(
        "e", head.config, head.tensors | {"mask_hidden": one}
    )
    assert "has no tensor d2t" in saved("f", head.config, {n: t for n, t in head.tensors.items() if n != "d2t"})
    far = head.tensors | {"d2t": torch.full((DRAFTED,), VOCABULARY)}
    assert "d2t must lead to ascending ids of the target, which are below 50" in saved("g", head.config, far)
    whole = head.tensors | {"fc.weight": torch.ones(HIDDEN, 96, dtype=torch.int8)}
    assert "fc.weight has dtype I8; one of F32, BF16, F16 is allowed" in saved("h", head.config, whole)


@pytest.mark.parametrize(
    ("make", "kind", "speculators"),
    [
        (eagle3, "eagle3", False),
        (eagle31, "eagle3", False),
        (eagle3_of_speculators, "eagle3", True),
        (dflash, "dflash", False),
        (dspark, "dspark", False),
        (dspark_of_specforge, "dspark", False),
        (dflash_of_speculators, "dflash", True),
    ],
)
def test_a_layout_is_named(target: LlamaModel, tmp_path: Path, make: Make, kind: str, speculators: bool) -> None:
    layout = load_head(make().save(tmp_path), target.config)[1]
    assert (layout.kind, layout.speculators) == (kind, speculators)


def test_names_may_have_the_prefix_of_a_whole_model_and_a_file_may_be_in_shards(
    target: LlamaModel, tmp_path: Path
) -> None:
    head = eagle3()
    for name in ("a", "b"):
        head.save(tmp_path / name)
    tensors = {f"model.{name}": tensor for name, tensor in head.tensors.items()}
    (tmp_path / "b" / "model.safetensors").unlink()
    files = dict.fromkeys(tensors, "one.safetensors") | {"model.fc.weight": "two.safetensors"}
    for file in set(files.values()):
        save_file({n: t for n, t in tensors.items() if files[n] == file}, tmp_path / "b" / file)
    (tmp_path / "b" / "model.safetensors.index.json").write_text(json.dumps({"weight_map": files}))
    plain, sharded = (load_head(tmp_path / name, target.config)[0] for name in ("a", "b"))
    assert all(torch.equal(sharded.tensors[name], tensor) for name, tensor in plain.tensors.items())


def test_fields_that_equal_the_defaults_of_transformers_may_be_missing(target: LlamaModel) -> None:
    own = Qwen3Config(hidden_size=1024, num_hidden_layers=1, num_attention_heads=16, num_key_value_heads=8)
    stated = ("hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "model_type")
    values = {name: own.to_dict()[name] for name in stated}
    values |= {"block_size": 7, "target_layer_ids": [0], "mask_token_id": 3, "markov_rank": 4}
    wide = replace(target.config, vocab_size=own.vocab_size, hidden_size=1024)
    shape = read_layout(Fields("here", values), [], wide).shape
    assert isinstance(shape, BlockShape)
    assert (shape.head_dim, shape.vocabulary) == (own.head_dim, own.vocab_size)
    assert (shape.intermediate_size, shape.norm_eps) == (own.intermediate_size, own.rms_norm_eps)
    assert shape.rope.theta == own.rope_parameters["rope_theta"]
