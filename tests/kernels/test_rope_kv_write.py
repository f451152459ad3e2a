"""The Triton kernel of rope_kv_write against its definition."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from outrider.kernels.kv_quant import LARGEST_QUANT
from outrider.kernels.kv_quant import reference as kv_quant
from outrider.kernels.pool import POOL_DTYPES, KvPool
from outrider.kernels.rms_norm import reference as rms_norm
from outrider.kernels.rope_kv_write import cpu, reference, triton
from torch import Tensor

from tests.kernels.device import DEVICE, DTYPES, noise, poison, tolerance

EPS = torch.tensor(1e-6, device=DEVICE)
LAYER, SCALE = 1, 0.25


@dataclass
class Case:
    """Rows, and the positions they stand at."""

    heads: int
    kv_heads: int
    head_dim: int
    dtype: torch.dtype = torch.float32
    pool_dtype: torch.dtype = torch.float32
    normed: bool = False
    balance: Tensor | None = None
    slots: tuple[int, ...] = (9, 2, 11, 3)

    def __post_init__(self) -> None:
        rows = len(self.slots)
        self.qkv = noise(rows, (self.heads + 2 * self.kv_heads) * self.head_dim, dtype=self.dtype)
        self.angles = noise(rows, self.head_dim // 2, seed=1) * 9
        self.norm = noise(self.heads + self.kv_heads, self.head_dim, seed=2) if self.normed else None

    @property
    def key_rope(self) -> Tensor:
        return torch.polar(torch.ones_like(self.angles), self.angles)[:, None]

    def run(self, rows: list[int] | None = None) -> tuple[Tensor, KvPool]:
        """Queries and pool after the given rows, in that order."""
        rows = list(range(len(self.slots))) if rows is None else rows
        pool = KvPool(2, 3, 4, self.kv_heads, self.head_dim, self.pool_dtype, DEVICE)
        poison()
        queries = torch.empty(len(rows), self.heads, self.head_dim, dtype=self.dtype, device=DEVICE)
        slots = torch.tensor([self.slots[row] for row in rows], device=DEVICE)
        triton.rope_kv_write(
            self.qkv[rows], self.key_rope[rows], self.key_rope[rows] * SCALE, queries, pool, LAYER, slots,
            head_norm=self.norm, eps=EPS, balance=self.balance,
        )  # fmt: skip
        return queries, pool

    def expected(self) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values, float32 [rows, heads, head_dim]."""
        heads = self.qkv.view(len(self.slots), -1, self.head_dim).float()
        rotating, v = heads.split([self.heads + self.kv_heads, self.kv_heads], 1)
        rotating = rotating if self.norm is None else rms_norm.rms_norm(rotating, self.norm, EPS.item())
        q, k = rotating.split([self.heads, self.kv_heads], 1)
        return reference.rotate(q, self.angles, SCALE), reference.rotate(k, self.angles, 1.0), v


SHAPES = [(4, 2, 64), (5, 1, 80), (3, 3, 96), (12, 4, 128), (3, 1, 256), (7, 7, 10)]


@pytest.mark.parametrize("normed", [False, True])
@pytest.mark.parametrize(("heads", "kv_heads", "head_dim"), SHAPES)
def test_queries_and_keys_are_turned_and_keys_and_values_written(
    heads: int, kv_heads: int, head_dim: int, normed: bool
) -> None:
    case = Case(heads, kv_heads, head_dim, normed=normed)
    queries, pool = case.run()
    q, k, v = case.expected()
    room = {"atol": 2e-5, "rtol": 2e-5, "equal_nan": False}
    torch.testing.assert_close(queries, q, **room)
    slots = list(case.slots)
    torch.testing.assert_close(pool.data[LAYER, slots, 0], k, **room)
    assert torch.equal(pool.data[LAYER, slots, 1], v)
    pool.data[LAYER, slots] = 0
    assert not pool.data.any()


@pytest.mark.parametrize("normed", [False, True])
def test_factors_of_powers_of_two_multiply_queries_and_keys_and_change_no_bit_else(normed: bool) -> None:
    exponents = torch.arange(6 * 32, device=DEVICE).view(6, 32) % 7 - 3
    balance = torch.ones(6, 64, device=DEVICE).ldexp(exponents.repeat_interleave(2, 1))
    queries, pool = Case(4, 2, 64, normed=normed).run()
    balanced, other = Case(4, 2, 64, normed=normed, balance=balance).run()
    assert torch.equal(balanced, queries * balance[:4])
    assert torch.equal(other.data[:, :, 0], pool.data[:, :, 0] * balance[4:])
    assert torch.equal(other.data[:, :, 1], pool.data[:, :, 1])


@pytest.mark.parametrize("pool_dtype", [dtype for dtype in POOL_DTYPES if dtype not in LARGEST_QUANT])
@pytest.mark.parametrize("dtype", DTYPES)
def test_what_is_written_is_rounded_once(dtype: torch.dtype, pool_dtype: torch.dtype) -> None:
    case = Case(4, 2, 80, dtype, pool_dtype)
    queries, pool = case.run()
    q, k, v = case.expected()
    slots = list(case.slots)
    torch.testing.assert_close(queries.float(), q, **tolerance(torch.float16 if dtype == torch.float32 else dtype))
    torch.testing.assert_close(pool.data[LAYER, slots, 0].float(), k, **tolerance(torch.bfloat16))
    torch.testing.assert_close(pool.data[LAYER, slots, 1].float(), v, **tolerance(pool_dtype))


@pytest.mark.parametrize("pool_dtype", list(LARGEST_QUANT))
@pytest.mark.parametrize(("heads", "kv_heads", "head_dim"), [(4, 2, 64), (5, 1, 80), (3, 3, 256)])
def test_a_pool_of_codes_gets_codes_and_their_scales(
    heads: int, kv_heads: int, head_dim: int, pool_dtype: torch.dtype
) -> None:
    case = Case(heads, kv_heads, head_dim, pool_dtype=pool_dtype, normed=True)
    _, pool = case.run()
    _, k, v = case.expected()
    assert pool.scales is not None
    slots = list(case.slots)
    written = torch.stack([k, v], 1)
    quants, scales = kv_quant.quantize(written, pool_dtype)
    torch.testing.assert_close(pool.scales[LAYER, slots], scales, rtol=1e-5, atol=0)
    assert torch.equal(pool.data[LAYER, slots, 1].view(torch.uint8), quants[:, 1].view(torch.uint8))
    decoded = kv_quant.dequantize(pool.data[LAYER, slots], pool.scales[LAYER, slots])
    step = 2.0**-4 if pool_dtype != torch.int8 else 0.0
    room = (written.abs() * step).maximum(scales[..., None] * 0.501) * 1.001
    assert ((decoded - written).abs() <= room).all()
    pool.data.view(torch.uint8)[LAYER, slots] = 0
    pool.scales[LAYER, slots] = 0
    assert not pool.data.view(torch.uint8).any()
    assert not pool.scales.any()


@pytest.mark.parametrize("pool_dtype", [torch.float32, torch.int8])
def test_a_row_without_a_slot_writes_queries_alone(pool_dtype: torch.dtype) -> None:
    case = Case(4, 2, 64, pool_dtype=pool_dtype, slots=(-1, 2, -1))
    queries, pool = case.run()
    torch.testing.assert_close(queries, case.expected()[0], atol=1e-5, rtol=1e-5)
    assert pool.data[LAYER, 2].any()
    pool.data[LAYER, 2] = 0
    assert not pool.data.any()


@pytest.mark.parametrize("pool_dtype", [torch.bfloat16, torch.float8_e4m3fn])
def test_a_rows_bits_do_not_depend_on_the_others(pool_dtype: torch.dtype) -> None:
    case = Case(5, 2, 80, pool_dtype=pool_dtype, normed=True)
    together, pool = case.run()
    for rows in ([2], [3, 1], [1, 0, 3, 2]):
        queries, alone = case.run(rows)
        slots = [case.slots[row] for row in rows]
        assert torch.equal(queries, together[rows])
        assert torch.equal(alone.data.view(torch.uint8)[:, slots], pool.data.view(torch.uint8)[:, slots])


def test_both_paths_agree_with_norms() -> None:
    case = Case(6, 2, 64, normed=True)
    queries, pool = case.run()
    qkv, other = case.qkv.clone().cpu(), KvPool(2, 3, 4, 2, 64)
    out = torch.empty(4, 2, 3, 32, dtype=torch.complex64)
    norm = None if case.norm is None else case.norm.cpu()
    key_rope, slots = case.key_rope.cpu(), torch.tensor(case.slots)
    cpu.rope_kv_write(qkv, key_rope, key_rope * SCALE, out, other, LAYER, slots, head_norm=norm, eps=EPS.cpu())
    torch.testing.assert_close(queries.cpu().view(4, 2, 3, 64), torch.view_as_real(out).flatten(3))
    torch.testing.assert_close(pool.data.cpu(), other.data)


@pytest.mark.skipif(DEVICE.type != "cpu", reason="a failed assertion on a GPU ends the process's use of it")
@pytest.mark.parametrize("slot", [12, -2])
def test_a_slot_outside_the_pool_is_caught_where_kernels_are_checked(slot: int) -> None:
    with pytest.raises(Exception, match="a slot is outside the pool"):
        Case(2, 1, 64, slots=(3, slot)).run()


def test_what_does_not_fit_is_refused() -> None:
    case, pool = Case(4, 2, 64), KvPool(2, 3, 4, 2, 64, device=DEVICE)
    queries, slots = torch.empty(4, 4, 64, device=DEVICE), torch.tensor(case.slots, device=DEVICE)
    good = (case.qkv, case.key_rope, case.key_rope, queries, pool, 0, slots)

    def refused(match: str, index: int, bad: object, **options: Tensor | None) -> None:
        with pytest.raises(ValueError, match=match):
            triton.rope_kv_write(*good[:index], bad, *good[index + 1 :], **options)  # type: ignore[arg-type]

    refused("must be contiguous \\[rows, 512\\]", 0, case.qkv[:, :-64])
    refused("query_rope are .*; complex64 \\[4, 1, 32\\] it is", 2, case.key_rope[:, 0])
    refused("queries are .*; they must be contiguous \\[4, heads, 64\\]", 3, queries[:3])
    refused("layer 2 is not one of the pool's 2", 5, 2)
    refused("slots are .*; they must be contiguous int64 \\[4\\]", 6, slots.int())
    refused("head_norm is .*; float32 \\[6, 64\\] it is", 5, 0, head_norm=noise(4, 64), eps=EPS)
    refused("head_norm needs eps", 5, 0, head_norm=noise(6, 64))
