"""Heads of which a part is rotated, beside transformers' Phi 3: a Llama but for the names of its weights."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from outrider.engine.models.llama import LlamaModel
from safetensors.torch import save_file
from transformers import LlamaConfig, Phi3Config, Phi3ForCausalLM

from tests.engine.models.checkpoints import SHAPE, tokens
from tests.engine.models.runs import whole
from tests.kernels.choosing import kernels


def save(directory: Path, share: float) -> Phi3ForCausalLM:
    """Writes a Phi 3 with Llama's names; returns transformers' own."""
    torch.manual_seed(0)
    changes = {"hidden_size": 96, "partial_rotary_factor": share, "pad_token_id": 0}
    theirs = Phi3ForCausalLM(Phi3Config(**SHAPE | changes)).eval()
    weights = dict(theirs.state_dict())
    for name in list(weights):
        if name.endswith("qkv_proj.weight"):
            parts = weights.pop(name).split([96, 32, 32])
            weights |= {name.replace("qkv", each): part for each, part in zip("qkv", parts, strict=True)}
        if name.endswith("gate_up_proj.weight"):
            parts = weights.pop(name).chunk(2)
            weights |= {name.replace("gate_up", each): part for each, part in zip(("gate", "up"), parts, strict=True)}
    save_file({name: weight.contiguous() for name, weight in weights.items()}, directory / "model.safetensors")
    rms_norm_eps = theirs.config.rms_norm_eps
    fields = LlamaConfig(**SHAPE | {"hidden_size": 96, "rms_norm_eps": rms_norm_eps}).to_dict()
    fields |= {"architectures": ["LlamaForCausalLM"], "partial_rotary_factor": share}
    (directory / "config.json").write_text(json.dumps(fields))
    return theirs


@pytest.mark.parametrize("share", [0.25, 0.5, 0.75])
@pytest.mark.parametrize("backend", ["torch", "auto"])
def test_elements_that_are_not_turned_stay_as_they_are(share: float, backend: str, tmp_path: Path) -> None:
    theirs, ids = save(tmp_path, share), tokens(80)
    with torch.no_grad():
        expected = theirs(ids[None]).logits[0]
    with kernels(backend):
        ours = LlamaModel.load(tmp_path)
    assert (whole(ours, ids) - expected).abs().max() < 1e-4
