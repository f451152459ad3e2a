"""The Triton kernels of experts against their definition, and against a loop over the experts."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from outrider.kernels.experts import pack, reference
from outrider.kernels.experts.loop import LoopedExperts
from outrider.kernels.experts.triton import StackedExperts
from outrider.kernels.launch import record_launches
from outrider.kernels.linear.gpu import GpuLinear
from outrider.kernels.linear.packed_weight import pack_weight
from torch import Tensor

from tests.kernels.choosing import kernels
from tests.kernels.device import DEVICE, DTYPES, noise, poison, tolerance

Weights = tuple[Tensor, Tensor]


def weights(count: int, hidden: int, width: int, dtype: torch.dtype = torch.float32) -> Weights:
    """Gate and up, and down."""
    gate_up = noise(count, 2 * width, hidden, seed=1) / hidden**0.5
    return gate_up.to(dtype), (noise(count, hidden, width, seed=2) / width**0.5).to(dtype)


def looped(gate_up: Tensor, down: Tensor, active: int, *, normed: bool) -> LoopedExperts:
    """The same experts, one after the other, each by `linear` and `swiglu`."""
    linears = [[GpuLinear(pack_weight(each, None), None, strict=True) for each in side] for side in (gate_up, down)]
    return LoopedExperts(list(zip(*linears, strict=True)), active, normed=normed)


@pytest.mark.parametrize("dtype", DTYPES)
@settings(max_examples=3, deadline=None)
@given(
    rows=st.integers(1, 5),
    count=st.integers(1, 4),
    hidden=st.integers(1, 40),
    width=st.integers(1, 20),
    normed=st.booleans(),
    data=st.data(),
)
def test_it_adds_the_likeliest_experts(
    rows: int, count: int, hidden: int, width: int, normed: bool, data: st.DataObject, dtype: torch.dtype
) -> None:
    active = data.draw(st.integers(1, count))
    x, scores, (gate_up, down) = (
        noise(rows, hidden, dtype=dtype),
        noise(rows, count),
        weights(count, hidden, width, dtype),
    )
    poison()
    out = StackedExperts(gate_up, down, active, normed=normed)(x, scores)
    assert (out.dtype, out.shape) == (torch.float32, (rows, hidden))
    off = {name: 2 * each for name, each in tolerance(dtype).items()}
    torch.testing.assert_close(out, reference.experts(x, scores, gate_up, down, active, normed=normed), **off)


def test_it_has_the_bits_of_a_loop_over_the_experts() -> None:
    """Input features are divided into shares, as those of `linear` are; each row has an expert with a share of 1."""
    x, both = noise(5, 256), weights(2, 256, 36)
    scores = torch.tensor([[0.0, 200.0], [200.0, 0.0]], device=DEVICE)[[0, 1, 1, 0, 1]]
    poison()
    with kernels("triton"):
        together, one_by_one = (make(*both, 2, normed=False)(x, scores) for make in (StackedExperts, looped))
    assert torch.equal(together, one_by_one)


@pytest.mark.parametrize(("dtype", "rows"), [(torch.float32, 9), (torch.bfloat16, 34)])
def test_a_rows_bits_do_not_depend_on_the_others(dtype: torch.dtype, rows: int) -> None:
    """Thirty-four rows of two experts take blocks of more rows than a few do."""
    x, scores, both = noise(rows, 48, dtype=dtype), noise(rows, 2), weights(2, 48, 16, dtype)
    experts = StackedExperts(*both, 1, normed=False)
    together = experts(x, scores)
    for chosen in ([0], [rows - 1, 1, 3]):
        assert torch.equal(experts(x[chosen], scores[chosen]), together[chosen])
    order = torch.randperm(rows, generator=torch.Generator().manual_seed(1)).to(DEVICE)
    assert torch.equal(experts(x[order], scores[order]), together[order])


@pytest.mark.parametrize(("rows", "favourite"), [(1, 0), (16, 4), (17, 2), (40, 4)])
def test_all_rows_may_have_one_expert_and_others_none(rows: int, favourite: int) -> None:
    x, both = noise(rows, 32), weights(5, 32, 16)
    scores = torch.zeros(rows, 5, device=DEVICE)
    scores[:, favourite] = 3.0
    poison()
    out = StackedExperts(*both, 1, normed=False)(x, scores)
    torch.testing.assert_close(out, reference.experts(x, scores, *both, 1, normed=False), atol=4e-6, rtol=4e-6)


def test_of_equally_likely_experts_the_first_are_taken() -> None:
    x, both = noise(3, 32), weights(5, 32, 16)
    out = StackedExperts(*both, 2, normed=True)(x, torch.ones(3, 5, device=DEVICE))
    expected = sum(
        reference.experts(x, torch.ones(3, 1), *(e[i : i + 1] for e in both), 1, normed=True) for i in (0, 1)
    )
    torch.testing.assert_close(out, expected / 2, atol=4e-6, rtol=4e-6)


def test_a_row_of_nan_stays_alone() -> None:
    x, scores, both = noise(4, 32), noise(4, 5), weights(5, 32, 16)
    expected = StackedExperts(*both, 2, normed=True)(x, scores)
    scores[2] = float("nan")
    out = StackedExperts(*both, 2, normed=True)(x, scores)
    assert out.isnan().all(1).tolist() == [False, False, True, False]
    assert torch.equal(out[[0, 1, 3]], expected[[0, 1, 3]])


def test_no_rows_have_no_results() -> None:
    assert StackedExperts(*weights(3, 8, 4), 2, normed=True)(noise(0, 8), noise(0, 3)).shape == (0, 8)


def test_launches_do_not_depend_on_what_rows_choose() -> None:
    """On a device without memory there is nothing to choose by; each number of rows has room for its worst choice."""
    both = [each.to("meta") for each in weights(8, 64, 32, torch.bfloat16)]
    experts = StackedExperts(both[0], both[1], 2, normed=True)
    for rows, blocks in ((1, 2), (4, 8), (37, 8 + 66 // 16), (300, 8 + 592 // 64)):
        with record_launches() as launches:
            experts(torch.empty(rows, 64, dtype=torch.bfloat16, device="meta"), torch.empty(rows, 8, device="meta"))
        assert [launch.grid for launch in launches] == [(rows,), (9,), (blocks, 1), (blocks, 1), (rows, 1)]


@pytest.mark.parametrize("quantization", [None, "int8"])
def test_quantized_experts_are_a_loop(quantization: str | None) -> None:
    linears = [
        tuple(GpuLinear(pack_weight(each[0], quantization), None, strict=True) for each in weights(1, 40, 24))  # type: ignore[arg-type]
        for _ in range(3)
    ]
    experts = pack(linears, 2, normed=True)  # type: ignore[arg-type]
    assert isinstance(experts, LoopedExperts if quantization else StackedExperts)
    assert experts.on_device == (quantization is None)


def test_a_bias_is_for_the_loop() -> None:
    (gate_up, down), bias = weights(1, 40, 24), noise(40)
    pair = (
        GpuLinear(pack_weight(gate_up[0], None), None, strict=True),
        GpuLinear(pack_weight(down[0], None), bias, strict=True),
    )
    assert isinstance(pack([pair], 1, normed=True), LoopedExperts)


@pytest.mark.parametrize(
    ("x", "scores", "message"),
    [
        (noise(2, 7), noise(2, 3), r"must be a contiguous \[n, 8\] in torch.float32"),
        (noise(8, 2).T, noise(2, 3), "must be a contiguous"),
        (noise(2, 8, dtype=torch.float16), noise(2, 3), "in torch.float16"),
        (noise(2, 8), noise(2, 4), r"must be a contiguous \(2, 3\)"),
        (noise(2, 8), noise(2, 3, dtype=torch.bfloat16), "in float32"),
    ],
)
def test_what_does_not_fit_the_weights_is_refused(x: Tensor, scores: Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        StackedExperts(*weights(3, 8, 4), 2, normed=True)(x, scores)


def test_weights_that_do_not_fit_each_other_are_refused() -> None:
    gate_up, down = weights(3, 8, 4)
    with pytest.raises(ValueError, match=r"it must be \(3, 8, 8\) in torch.float32"):
        StackedExperts(gate_up[:2], down, 2, normed=True)
    with pytest.raises(ValueError, match="active is 4; it must be from 1 to 3"):
        StackedExperts(gate_up, down, 4, normed=True)
