"""rms_norm, swiglu, geglu and rope_kv_write against their definitions."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from outrider.kernels.geglu import geglu
from outrider.kernels.geglu import reference as geglu_reference
from outrider.kernels.pool import KvPool
from outrider.kernels.rms_norm import reference as rms_norm_reference
from outrider.kernels.rms_norm import rms_norm
from outrider.kernels.rope_kv_write import reference as rope_reference
from outrider.kernels.rope_kv_write import rope_kv_write
from outrider.kernels.swiglu import reference as swiglu_reference
from outrider.kernels.swiglu import swiglu


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.fixture(params=[1, 2])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_a_norm_scales_by_the_root_mean_square(scale: float) -> None:
    x, weight = random(5, 33) * scale, random(33, seed=1)
    for weighted in (None, weight):
        expected = rms_norm_reference.rms_norm(x, weighted, 1e-5)
        torch.testing.assert_close(rms_norm(x, weighted, torch.tensor(1e-5)), expected)


def test_a_norm_of_heads_takes_a_weight_a_head() -> None:
    x, weight = random(5, 3, 16), random(3, 16, seed=1)
    torch.testing.assert_close(rms_norm(x, weight, torch.tensor(1e-6)), rms_norm_reference.rms_norm(x, weight, 1e-6))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_gate_passes_what_its_silu_passes(dtype: torch.dtype) -> None:
    gate_up = (random(7, 58) * 3).to(dtype)
    torch.testing.assert_close(
        swiglu(gate_up).float(), swiglu_reference.swiglu(gate_up), rtol=torch.finfo(dtype).eps * 4, atol=1e-6
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_gate_passes_what_its_gelu_passes(dtype: torch.dtype) -> None:
    gate_up = (random(7, 58) * 3).to(dtype)
    torch.testing.assert_close(
        geglu(gate_up).float(), geglu_reference.geglu(gate_up), rtol=torch.finfo(dtype).eps * 4, atol=1e-6
    )


@pytest.mark.parametrize("gated", [swiglu, geglu])
@pytest.mark.parametrize("width", [52, 704, 40_001])
def test_a_gates_bits_do_not_depend_on_the_other_rows(
    threads: int, width: int, gated: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    gate_up = random(150_000 // width + 3, 2 * width)
    together = gated(gate_up)
    alone = torch.cat([gated(row[None]) for row in gate_up])
    assert torch.equal(together, alone)


def test_a_norms_bits_do_not_depend_on_the_other_rows(threads: int) -> None:
    x, eps = random(301, 250), torch.tensor(1e-5)
    assert torch.equal(rms_norm(x, None, eps), torch.cat([rms_norm(row[None], None, eps) for row in x]))


@pytest.mark.parametrize(("kv_heads", "group", "head_dim"), [(2, 2, 8), (1, 3, 10)])
def test_queries_and_keys_are_turned_and_keys_and_values_written(kv_heads: int, group: int, head_dim: int) -> None:
    rows, heads, layer = 4, kv_heads * group, 1
    qkv, angles = random(rows, (heads + 2 * kv_heads) * head_dim), random(rows, head_dim // 2, seed=1) * 9
    rope = torch.polar(torch.ones_like(angles), angles)[:, None]
    queries = torch.empty(rows, kv_heads, group, head_dim // 2, dtype=torch.complex64)
    pool, slots = KvPool(2, 3, 4, kv_heads, head_dim), torch.tensor([9, 2, 3, 11])
    q, k, v = qkv.clone().view(rows, -1, head_dim).split([heads, kv_heads, kv_heads], 1)
    rope_kv_write(qkv, rope, rope * 0.25, queries, pool, layer, slots)
    expected = rope_reference.rotate(q, angles, 0.25).view(rows, kv_heads, group, head_dim)
    torch.testing.assert_close(torch.view_as_real(queries).flatten(3), expected)
    torch.testing.assert_close(pool.data[layer, slots, 0], rope_reference.rotate(k, angles, 1.0))
    assert torch.equal(pool.data[layer, slots, 1], v)
    untouched = torch.ones(12, dtype=torch.bool)
    untouched[slots] = False
    assert not pool.data[layer, untouched].any()
    assert not pool.data[0].any()
