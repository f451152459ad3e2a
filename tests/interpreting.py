"""Triton's interpreter, patched to be faster and to sum in a fixed order."""

from __future__ import annotations

import inspect
from functools import cache
from math import prod
from typing import Any

import triton.language as tl
from numpy.typing import DTypeLike, NDArray
from triton.runtime import interpreter


@cache
def change_the_language_once() -> None:
    """Makes a launch replace the language's functions by interpreted ones once, not at every call within it."""
    change, changed = interpreter._patch_lang, set[int]()

    def once(fn: Any) -> Any:
        named = {id(each) for each in fn.__globals__.values() if inspect.ismodule(each) and each in (tl, tl.core)}
        if changed and named <= changed:
            return None  # a call within a launch, which restores everything at its end
        scope = change(fn)
        changed.update(named)
        undo = scope.restore
        scope.restore = lambda: (changed.clear(), undo())
        return scope

    interpreter._patch_lang = once


@cache
def describe_types_once() -> None:
    """Has the interpreter describe each type and each shape once, not again for every tensor."""
    core = tl.core

    @cache
    def shape_of(sizes: tuple[int, ...]) -> tuple[Any, Any]:
        return core.tuple([core.constexpr(size) for size in sizes]), core.constexpr(prod(sizes))

    @cache
    def block_of(element: Any, sizes: tuple[int, ...]) -> dict[str, Any]:
        made = object.__new__(core.block_type)
        describe(made, element, list(sizes))
        return vars(made)

    def make_block(self: Any, element_ty: Any, shape: Any) -> None:
        if element_ty.is_ptr():  # has no hash
            describe(self, element_ty, shape)
        else:
            vars(self).update(block_of(element_ty, tuple(getattr(size, "value", size) for size in shape)))

    def dtype_of(kind: Any) -> Any:
        return pointers if kind.scalar.is_ptr() else dtype_of_scalar(kind.scalar)

    def make_tensor(self: Any, handle: Any, kind: Any) -> None:
        self.handle, self.type, self.dtype = handle, kind, kind.scalar
        self.shape, self.numel = shape_of(tuple(kind.shape) if kind.is_block() else ())

    describe, dtype_of_scalar = core.block_type.__init__, cache(interpreter._get_np_dtype)
    pointers = interpreter._get_np_dtype(tl.pointer_type(tl.int8))
    core.block_type.__init__, core.tensor.__init__ = make_block, make_tensor
    interpreter._get_np_dtype = dtype_of


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
    """The products of ``a``, ``[..., m, k]``, and ``b``, ``[..., k, n]``, summed by halves; ``k`` is a power of two."""
    terms = a.astype(dtype)[..., :, :, None] * b.astype(dtype)[..., None, :, :]
    while (half := terms.shape[-2] // 2) > 0:
        terms = terms[..., :half, :] + terms[..., half:, :]
    return terms[..., 0, :]
