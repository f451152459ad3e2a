"""Values inside and outside the bounds of a parameter, made of its type."""

from __future__ import annotations

from typing import Any

from msgspec import inspect
from outrider.v1.sampling_pb2 import Grammar, Mark, Thought


def inside(kind: inspect.Type) -> Any:
    """A value at the upper bound, or between both bounds of a number, with one part of each kind."""
    match kind:
        case inspect.BoolType():
            return True
        case inspect.IntType(le=most):
            return most
        case inspect.FloatType(ge=least, gt=above, le=most) if most is not None:
            bottom = least if above is None else above
            return bottom + 0.75 * (most - bottom) if bottom is not None else most
        case inspect.StrType():
            return "a"
        case inspect.VarTupleType(item_type=item):
            return (inside(item),)
        case inspect.DictType(key_type=key, value_type=value):
            return {inside(key): inside(value)}
        case inspect.UnionType(types=types):
            return inside(types[0])
        case inspect.CustomType(cls=cls) if cls is Grammar:
            return Grammar(regex="a")
        case inspect.CustomType(cls=cls) if cls is Thought:
            return Thought(start=Mark(ids=b"\1\0\0\0"), end=Mark(ids=b"\2\0\0\0", text="a"), budget=3)
        case inspect.Metadata(type=plain):
            return inside(plain)
    raise NotImplementedError(kind)


def not_default(field: inspect.Field) -> Any:
    """As `inside`, of a field's type; False where the field's default is True."""
    return False if field.default is True else inside(field.type)


def outside(kind: inspect.Type) -> Any:
    """A value below the lower bound, or with a part below it; None without a bound."""
    match kind:
        case inspect.IntType(ge=least) | inspect.FloatType(ge=least) if least is not None:
            return least - 2
        case inspect.FloatType(gt=least):
            return least
        case inspect.VarTupleType(item_type=item):
            return (outside(item),)
        case inspect.DictType(key_type=key, value_type=value):
            return {inside(key): outside(value)}
        case inspect.UnionType(types=types):
            return outside(types[0])
        case inspect.Metadata(type=plain):
            return outside(plain)
    return None
