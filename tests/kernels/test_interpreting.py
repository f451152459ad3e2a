"""The interpreter's matmuls: their values, which do not depend on the installed BLAS."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from outrider.kernels.launch import INTERPRETED

from tests.interpreting import product

SIZES = [(16, 16, 16), (1, 64, 16), (16, 64, 1), (64, 128, 64)]


def factors(m: int, k: int, n: int) -> tuple[np.ndarray, np.ndarray]:
    chance = np.random.default_rng(m * k * n)
    a, b = chance.standard_normal((m, k)), chance.standard_normal((k, n))
    return a.astype(np.float32), b.astype(np.float32)


@pytest.mark.parametrize("size", SIZES)
def test_a_product_is_that_of_matrices(size: tuple[int, int, int]) -> None:
    a, b = factors(*size)
    np.testing.assert_allclose(product(a, b, np.float32), a.astype(float) @ b.astype(float), atol=1e-4)
    np.testing.assert_allclose(product(np.stack([a, 2 * a]), np.stack([b, b]), np.float64)[1], 2 * a @ b, atol=1e-4)


@pytest.mark.parametrize("size", SIZES)
def test_an_elements_bits_are_those_of_its_row_and_column_alone(size: tuple[int, int, int]) -> None:
    a, b = factors(*size)
    whole = product(a, b, np.float32)
    for row in range(a.shape[0]):
        for column in (0, b.shape[1] - 1):
            alone = product(a[row : row + 1], b[:, column : column + 1], np.float32)
            assert alone.tobytes() == whole[row, column].tobytes()


@triton.jit
def _multiply(a, b, out, size: tl.constexpr):
    place = tl.arange(0, size)
    at = place[:, None] * size + place[None, :]
    tl.store(out + at, tl.dot(tl.load(a + at), tl.load(b + at), input_precision="ieee"))


@pytest.mark.skipif(not INTERPRETED, reason="kernels are compiled where there is a GPU")
def test_the_interpreter_multiplies_without_blas(monkeypatch: pytest.MonkeyPatch) -> None:
    def blas(*_: object, **__: object) -> None:
        raise AssertionError("BLAS was asked")

    monkeypatch.setattr(np, "matmul", blas)
    a, b = factors(32, 32, 32)
    out = torch.empty(32, 32)
    _multiply[(1,)](torch.from_numpy(a), torch.from_numpy(b), out, 32)
    assert out.numpy().tobytes() == product(a, b, np.float32).tobytes()
