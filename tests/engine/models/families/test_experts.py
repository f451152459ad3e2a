"""Experts: the names that their tensors go by, and rows that share an expert."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from outrider.engine.errors import ModelError
from outrider.engine.models.checkpoint import Checkpoint
from outrider.engine.models.llama import LlamaModel
from safetensors.torch import load_file, save_file

from tests.engine.models.checkpoints import save, tokens
from tests.engine.models.runs import whole


@pytest.mark.parametrize("family", ["mixtral", "qwen 3 with experts"])
def test_the_older_and_the_newer_names_of_tensors_are_the_same_model(family: str, tmp_path: Path) -> None:
    save(family, tmp_path / "older")
    save(family, tmp_path / "newer", save_original_format=False)
    older, newer = (Checkpoint(tmp_path / name) for name in ("older", "newer"))
    joined = "model.layers.0.mlp.experts.gate_up_proj"
    assert (older.has(joined), newer.has(joined)) == (False, True)
    first, second = (whole(LlamaModel.load(tmp_path / name), tokens(30)) for name in ("older", "newer"))
    assert torch.equal(first, second)


def test_a_missing_expert_is_named(tmp_path: Path) -> None:
    save("mixtral", tmp_path)
    path = tmp_path / "model.safetensors"
    tensors = load_file(path)
    missing = "model.layers.1.block_sparse_moe.experts.3.w2.weight"
    del tensors[missing]
    save_file(tensors, path)
    with pytest.raises(ModelError, match=missing):
        LlamaModel.load(tmp_path)


def test_experts_of_equal_rows_give_each_row_the_same_bits(tmp_path: Path) -> None:
    """Every row of a step then shares its experts with all others."""
    save("mixtral", tmp_path, layers=1)
    model = LlamaModel.load(tmp_path, determinism="strict")
    ids = torch.full((40,), 5)
    logits = whole(model, ids)
    for count in (1, 2, 7, 39):
        assert torch.equal(whole(model, ids[:count]), logits[:count])
