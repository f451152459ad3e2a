"""Triton's interpreter, patched to be faster and to sum in a fixed order."""

from __future__ import annotations

import inspect
from functools import cache
from typing import Any

import triton.language as tl
from numpy.typing import DTypeLike, NDArray
from triton.runtime import interpreter


@cache
def change_the_language_once() -> None:
    """Makes a launch replace the language's functions by interpreted ones once, not at every call within it.

    The table of numpy's types is kept too, which every operation makes anew.
    """
    change, changed = interpreter._patch_lang, set[int]()
    to_numpy = interpreter._get_np_dtype
    kept = cache(to_numpy)

    def numpy_type(of: Any) -> Any:
        return to_numpy(of) if isinstance(of.scalar, tl.pointer_type) else kept(of.scalar)

    interpreter._get_np_dtype = numpy_type

    @cache
    def named_in(fn: Any) -> set[int]:
        return {id(each) for each in fn.__globals__.values() if inspect.ismodule(each) and each in (tl, tl.core)}

    def once(fn: Any) -> Any:
        named = named_in(fn)
        if changed and named <= changed:
            return None  # a call within a launch, which restores everything at its end
        scope = change(fn)
        # Triton 3.6 takes int() of an array of one number, which numpy 2.5 refuses.
        scope.set_attr(tl.tensor, "__index__", lambda tensor: tensor.handle.data.item())
        changed.update(named)
        undo = scope.restore
        scope.restore = lambda: (changed.clear(), undo())
        return scope

    interpreter._patch_lang = once


def multiply_in_one_order() -> None:
    """Makes `tl.dot` sum in an order that depends only on the length of the sum.

    The interpreter multiplies by `numpy.matmul`. Some kernels of OpenBLAS, those for AVX2 among them, then give a row
    other bits beside other rows.
    """

    def create_dot(_: Any, a: Any, b: Any, d: Any, *_precision: Any) -> Any:
        assert not any(each.dtype.is_fp8() for each in (a, b)), "the interpreter stores fp8 as integer codes"
        return interpreter.TensorHandle(product(a.data, b.data, d.data.dtype) + d.data, d.dtype.scalar)

    interpreter.InterpreterBuilder.create_dot = create_dot


def product(a: NDArray[Any], b: NDArray[Any], dtype: DTypeLike) -> NDArray[Any]:
    """The matmul of ``a``, ``[..., m, k]``, and ``b``, ``[..., k, n]``, summed by halves; ``k`` is a power of two."""
    terms = a.astype(dtype)[..., :, :, None] * b.astype(dtype)[..., None, :, :]
    while (half := terms.shape[-2] // 2) > 0:
        terms = terms[..., :half, :] + terms[..., half:, :]
    return terms[..., 0, :]
