"""Medusa's candidates, on a CPU and by the Triton kernels, against their definition."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from outrider.kernels.launch import recorded
from outrider.kernels.linear import gpu
from outrider.kernels.linear.packed import packed
from outrider.kernels.medusa_topk import MOST, MedusaHeads, cpu, reference, triton
from outrider.kernels.medusa_topk.heads import first_of
from torch import Tensor

from tests.kernels.device import DEVICE, DTYPES, noise, poison

Op = Callable[[Tensor, MedusaHeads, int], tuple[Tensor, Tensor]]
OPS: list[Op] = [cpu.medusa_topk, triton.medusa_topk]


def weights(heads: int, width: int, tokens: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor, Tensor]:
    blocks = (noise(heads, width, width, seed=1) / width**0.5).to(dtype)
    return blocks, noise(heads, width, seed=2, dtype=dtype), (noise(heads, tokens, width, seed=3) / 4).to(dtype)


def poisoned(op: Op, hidden: Tensor, heads: MedusaHeads, k: int) -> tuple[Tensor, Tensor]:
    poison()
    return op(hidden, heads, k)


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("dtype", DTYPES)
@settings(max_examples=4, deadline=None)
@given(
    rows=st.integers(1, 18),
    heads=st.integers(1, 3),
    width=st.integers(3, 90),
    tokens=st.integers(MOST, 300),
    k=st.integers(1, MOST),
    biased=st.booleans(),
)
def test_it_finds_the_likeliest_tokens(
    rows: int, heads: int, width: int, tokens: int, k: int, biased: bool, dtype: torch.dtype, op: Op
) -> None:
    hidden = noise(rows, width, dtype=dtype)
    blocks, biases, outputs = weights(heads, width, tokens, dtype)
    given_biases = biases if biased else None
    ids, values = poisoned(op, hidden, MedusaHeads.pack(blocks, given_biases, outputs), k)
    expected = reference.log_probabilities(hidden, blocks, given_biases, outputs)
    allowed = 2e-5 if dtype == torch.float32 else 0.15 if dtype == torch.bfloat16 else 0.02
    assert ids.dtype == torch.int64
    assert all(len(set(row)) == k for row in ids.flatten(0, 1).tolist())
    torch.testing.assert_close(values, expected.gather(-1, ids), atol=allowed, rtol=1e-5)
    torch.testing.assert_close(values, expected.topk(k).values, atol=allowed, rtol=1e-5)


@pytest.mark.parametrize("op", OPS)
def test_float32_candidates_are_those_of_the_definition(op: Op) -> None:
    hidden, (blocks, biases, outputs) = noise(3, 20), weights(2, 20, 900)
    ids, values = poisoned(op, hidden, MedusaHeads.pack(blocks, biases, outputs), 10)
    expected, likely = reference.medusa_topk(hidden, blocks, biases, outputs, 10)
    assert torch.equal(ids, expected)
    torch.testing.assert_close(values, likely, atol=2e-5, rtol=1e-5)


@pytest.mark.parametrize("op", OPS)
def test_of_equal_tokens_the_lowest_ids_come_first(op: Op) -> None:
    blocks, biases, outputs = weights(1, 8, 2100)
    outputs[0] = outputs[0, :5].repeat(420, 1)
    ids, values = poisoned(op, noise(2, 8), MedusaHeads.pack(blocks, biases, outputs), MOST)
    for row in range(2):
        first = int(ids[row, 0, 0])
        assert first < 5
        assert ids[row, 0].tolist() == [first + 5 * i for i in range(MOST)]
        assert values[row].unique().numel() == 1


@pytest.mark.parametrize("op", OPS)
def test_large_logits_neither_overflow_nor_lose_the_sum(op: Op) -> None:
    blocks, biases, outputs = weights(1, 8, 2100)
    ids, values = poisoned(op, noise(3, 8) * 100, MedusaHeads.pack(blocks, biases, outputs * 100), 3)
    expected = reference.medusa_topk(noise(3, 8) * 100, blocks, biases, outputs * 100, 3)
    assert torch.equal(ids, expected[0])
    torch.testing.assert_close(values, expected[1], atol=0.02, rtol=1e-5)


def test_a_rows_bits_do_not_depend_on_the_others() -> None:
    hidden = noise(19, 33, dtype=torch.bfloat16)
    heads = MedusaHeads.pack(*weights(2, 33, 200, torch.bfloat16))
    ids, values = triton.medusa_topk(hidden, heads, 5)
    for rows in (slice(0, 1), slice(7, 9), slice(15, 19)):
        again = triton.medusa_topk(hidden[rows].contiguous(), heads, 5)
        assert torch.equal(again[0], ids[rows])
        assert torch.equal(again[1], values[rows])
    order = torch.randperm(19, generator=torch.Generator().manual_seed(1)).to(DEVICE)
    assert torch.equal(triton.medusa_topk(hidden[order], heads, 5)[1], values[order])


def test_a_row_of_nan_stays_alone_and_names_tokens() -> None:
    hidden, heads = noise(3, 10), MedusaHeads.pack(*weights(1, 10, 40))
    alone = triton.medusa_topk(hidden[2:], heads, 4)
    hidden[1] = float("nan")
    ids, values = triton.medusa_topk(hidden, heads, 4)
    assert torch.equal(values[2:], alone[1])
    assert ((ids >= 0) & (ids < 40)).all()


def test_places_of_the_largest_are_stable() -> None:
    values = torch.tensor([[0.0, -0.0, 3.0, -1.0, 3.0, float("-inf"), float("inf"), -1.0]])
    assert first_of(values, 8).tolist() == [[6, 2, 4, 0, 1, 3, 7, 5]]


def test_the_launches_do_not_depend_on_the_number_of_rows_or_candidates() -> None:
    made = [torch.empty(shape, dtype=torch.bfloat16, device="meta") for shape in ((4, 64, 64), (4, 64), (4, 5000, 64))]
    launches = []
    for rows, k in ((1, 1), (40, 10)):
        with recorded() as noted:
            blocks = gpu.GpuLinear(packed(made[0].flatten(0, 1), None), made[1].flatten(), strict=True)
            hidden = torch.empty(rows, 64, dtype=torch.bfloat16, device="meta")
            triton.medusa_topk(hidden, MedusaHeads(blocks, made[2]), k)
        launches.append([(launch.kernel, launch.constants, launch.config) for launch in noted])
    assert launches[0] == launches[1]
    assert len(launches[0]) == 4


@pytest.mark.parametrize("op", OPS)
def test_no_rows_have_no_candidates(op: Op) -> None:
    ids, values = op(noise(0, 10), MedusaHeads.pack(*weights(2, 10, 40)), 4)
    assert ids.shape == values.shape == (0, 2, 4)


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize(
    ("hidden", "k", "message"),
    [
        (noise(2, 9), 3, r"must be a contiguous \[n, 10\]"),
        (noise(10, 2).T, 3, "must be a contiguous"),
        (noise(2, 10, dtype=torch.float16), 3, "it must be torch.float32"),
        (noise(2, 10), 0, "must be 1 to 16"),
        (noise(2, 10), 17, "must be 1 to 16"),
    ],
)
def test_what_does_not_fit_the_heads_is_refused(op: Op, hidden: Tensor, k: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        op(hidden, MedusaHeads.pack(*weights(1, 10, 40)), k)


def test_weights_that_do_not_fit_one_another_are_refused() -> None:
    blocks, biases, outputs = weights(2, 10, 40)
    with pytest.raises(ValueError, match=r"they must be \[2, 10, 10\] and \[2, 10\]"):
        MedusaHeads.pack(blocks[:1], biases, outputs)
    with pytest.raises(ValueError, match=r"they must be \[2, 10, 10\] and \[2, 10\]"):
        MedusaHeads.pack(blocks, biases[:1], outputs)
    with pytest.raises(ValueError, match="at least 16"):
        MedusaHeads.pack(blocks, biases, outputs[:, :9])
