"""The output layer of a checkpoint holds against a configuration that says the embedding is the output layer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from outrider.engine.models.llama import LlamaModel
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoModelForCausalLM

from tests.engine.models.checkpoints import FAMILIES, SHAPE, save, tokens
from tests.engine.models.runs import whole
from tests.kernels.choosing import kernels

IDS = tokens(40)
EMBEDDING, OUTPUT = "model.embed_tokens.weight", "lm_head.weight"


def head(seed: int = 0) -> Tensor:
    """A random output layer."""
    return torch.randn(SHAPE["vocab_size"], SHAPE["hidden_size"], generator=torch.Generator().manual_seed(seed)) * 0.2


def rewrite(directory: Path, **tensors: Tensor | None) -> None:
    """Says that the model is tied, and changes tensors, whose dots are double underscores here; None drops one."""
    config = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps(config | {"tie_word_embeddings": True}))
    stored = load_file(directory / "model.safetensors") | {n.replace("__", "."): t for n, t in tensors.items()}
    save_file({n: t for n, t in stored.items() if t is not None}, directory / "model.safetensors", {"format": "pt"})


def theirs(directory: Path) -> Tensor:
    """Transformers' logits of what is in ``directory``."""
    with torch.inference_mode():
        logits: Tensor = AutoModelForCausalLM.from_pretrained(directory).eval()(IDS[None]).logits[0]
    return logits


@pytest.mark.parametrize("kind", ["auto", "torch"])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_tied_model_with_another_output_layer_has_that_layer(family: str, kind: str, tmp_path: Path) -> None:
    save(family, tmp_path)
    rewrite(tmp_path, lm_head__weight=head())
    with kernels(kind):
        logits = whole(LlamaModel.load(tmp_path), IDS)
    assert (logits - theirs(tmp_path)).abs().max() < 1e-4


@pytest.mark.parametrize("family", ["llama 2", "gemma 3"])
def test_a_tied_model_with_nothing_but_the_output_layer_has_it_as_its_embedding(family: str, tmp_path: Path) -> None:
    save(family, tmp_path)
    rewrite(tmp_path, model__embed_tokens__weight=None, lm_head__weight=head())
    logits = whole(LlamaModel.load(tmp_path), IDS)
    assert (logits - theirs(tmp_path)).abs().max() < 1e-4
