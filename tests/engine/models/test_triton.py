"""A whole model on the Triton kernels agrees with the same model in plain torch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from outrider.engine.errors import ModelError
from outrider.engine.models import pocket
from outrider.engine.models.llama import LlamaModel
from outrider.engine.pages.kv_dtype import KV_DTYPES
from outrider.kernels import backend
from outrider.kernels.batch import SequenceRows
from outrider.kernels.shapes import SHAPES

from tests.engine.models.checkpoints import save, tokens
from tests.engine.models.runs import PAGE_SIZE, multiplies_bfloat16, step, whole
from tests.kernels.device import DEVICE

_LENGTH = 37


@pytest.fixture
def on_triton(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Runs every operator as a Triton kernel, on any device."""
    monkeypatch.setenv("OUTRIDER_KERNELS", "triton")
    backend.choice.cache_clear()
    yield
    backend.choice.cache_clear()


def load(directory: Path, determinism: str, kv_dtype: str = "auto") -> LlamaModel:
    return LlamaModel.load(
        directory,
        dtype="float32",
        device=DEVICE.type,
        determinism=determinism,  # type: ignore[arg-type]
        kv_dtype=kv_dtype,
    )


@pytest.mark.parametrize(("family", "layers"), [("llama 3", 2), ("qwen 3", 1), ("gemma 3", 3), ("mixtral", 1)])
def test_a_model_on_triton_agrees_with_plain_torch(
    family: str, layers: int, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    save(family, tmp_path, layers=layers)
    expected = whole(LlamaModel.load(tmp_path, dtype="float32"), tokens(_LENGTH))
    request.getfixturevalue("on_triton")
    model = load(tmp_path, "fast")
    torch.testing.assert_close(whole(model, tokens(_LENGTH).to(DEVICE)).cpu(), expected, atol=2e-4, rtol=2e-4)


@pytest.mark.usefixtures("on_triton")
def test_strict_logits_of_a_path_are_those_of_the_chunk(tmp_path: Path) -> None:
    """Tries a tree beside another sequence, which the check at load does not."""
    save("llama 3", tmp_path, layers=1)
    model = load(tmp_path, "strict")
    ids = tokens(_LENGTH).to(DEVICE)
    chunk = whole(model, ids)
    pool = model.new_pool(24, PAGE_SIZE)
    step(model, pool, [(ids[:33], SequenceRows(33, 0, range(8)))])
    nodes = ids[[33, 1, 34, 2, 35]]
    parents = [-1, 0, 0, 2, 2]
    other = (ids[:7], SequenceRows(7, 0, range(8, 16)))
    _, tree = step(model, pool, [other, (nodes, SequenceRows(5, 33, range(8), parents))])
    assert torch.equal(tree[[0, 2, 4]], chunk[33:36])


@pytest.mark.parametrize(("kv_dtype", "off"), [("float16", 0.002), ("int8", 0.02), ("fp8", 0.1)])
def test_pages_on_triton_are_in_the_dtype_that_is_asked_for(
    kv_dtype: str, off: float, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    save("llama 3", tmp_path, layers=1)
    expected = whole(LlamaModel.load(tmp_path, dtype="float32"), tokens(_LENGTH))
    request.getfixturevalue("on_triton")
    model = load(tmp_path, "strict", kv_dtype)
    assert model.new_pool(1, PAGE_SIZE).dtype == KV_DTYPES[kv_dtype]
    found = whole(model, tokens(_LENGTH).to(DEVICE)).cpu()
    assert not torch.equal(found, expected)
    torch.testing.assert_close(found, expected, atol=off * expected.abs().max().item(), rtol=0)


@pytest.mark.usefixtures("on_triton")
def test_pages_that_no_kernel_reads_are_refused(tmp_path: Path) -> None:
    save("llama 3", tmp_path)
    with pytest.raises(ModelError, match="24 tokens"):
        load(tmp_path, "fast").new_pool(2, 24)


def test_the_kernel_report_has_the_shipped_target_s_shape() -> None:
    """But for its pages, which compiled code keeps in float32 where it does not multiply bfloat16."""
    model = LlamaModel.load(pocket.directory("target"), dtype="bfloat16")
    kept = torch.bfloat16 if model.compiled is None or multiplies_bfloat16() else torch.float32
    assert replace(model.kernel_shape(16), name="pocket") == replace(SHAPES["pocket"], kv_dtype=kept)
