"""What is known of schemas without rewriting them: their values, whether they exclude each other, and their negations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any

from outrider.gateway.schemas.document import Document, Place
from outrider.gateway.schemas.keywords import said
from outrider.gateway.schemas.parts import all_of, any_of
from outrider.gateway.schemas.patterns import all_but
from outrider.gateway.schemas.values import TYPES, exact, key, plain, type_of

_MOST_STEPS = 5_000
"""Schemas that may be looked at for all comparisons of a document."""
_DEEPEST = 12
_OPPOSITES = {
    "minLength": ("string", "maxLength", -1),
    "maxLength": ("string", "minLength", 1),
    "minItems": ("array", "maxItems", -1),
    "maxItems": ("array", "minItems", 1),
    "minimum": ("number", "exclusiveMaximum", 0),
    "maximum": ("number", "exclusiveMinimum", 0),
    "exclusiveMinimum": ("number", "maximum", 0),
    "exclusiveMaximum": ("number", "minimum", 0),
}
"""For each bound the type of its values, the opposite bound, and the step between the two."""


class _Unknown(Exception):
    """A schema is too complex to be compared."""


class Comparison:
    """Compares the schemas of one document, with a bound on the work."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._left = _MOST_STEPS

    def values(self, place: Place) -> list[Any] | None:
        """All values of the schema at ``place``, if it lists them; else None."""
        try:
            return [*{key(value): value for value in self._values(place, _DEEPEST)}.values()]
        except _Unknown:
            return None

    def overlaps(self, places: Sequence[Place]) -> list[tuple[int, int]] | None:
        """The pairs of ``places`` that may have a value in common; None if there are too many to tell."""
        try:
            return [pair for pair in combinations(range(len(places)), 2) if not self._apart(*(places[each] for each in pair), _DEEPEST)]
        except _Unknown:
            return None

    def negation(self, place: Place) -> Any:
        """The schema of all values that do not fit the one at ``place``; None if the compiler lacks a part of it."""
        try:
            return self._negation(place, _DEEPEST)
        except _Unknown:
            return None

    def _step(self, place: Place, deeper: int) -> dict[str, Any]:
        self._left -= 1
        if self._left < 0 or deeper < 0:
            raise _Unknown
        return said(place)

    def _values(self, place: Place, deeper: int) -> list[Any]:
        if place.schema is False:
            return []
        if place.schema is True:
            raise _Unknown
        says = self._step(place, deeper)
        keywords = says.keys() - {"type"}
        if keywords and keywords <= {"enum", "const"}:
            return [value for value in _listed(says) or () if _kinds(says) & _kinds({"const": value})]
        if not keywords and _kinds(says) <= {"null", "boolean"}:
            return [value for value in (None, False, True) if type_of(value) in _kinds(says)]
        if says.keys() == {"$ref"}:
            return self._values(self._document.target(place), deeper - 1)
        if says.keys() == {"anyOf"}:
            return [value for each in place.each("anyOf") for value in self._values(each, deeper - 1)]
        raise _Unknown

    def _all(self, place: Place, deeper: int) -> Iterator[tuple[Place, dict[str, Any]]]:
        """The schema at ``place`` and those that hold wherever it does, each with what it says."""
        if isinstance(place.schema, bool):
            return
        says = self._step(place, deeper)
        yield place, says
        if "$ref" in says:
            yield from self._all(self._document.target(place), deeper - 1)
        for each in place.each("allOf") if "allOf" in says else ():
            yield from self._all(each, deeper - 1)

    def _apart(self, one: Place, other: Place, deeper: int) -> bool:
        """Whether no value fits both."""
        if False in (one.schema, other.schema):
            return True
        ones, others = [*self._all(one, deeper)], [*self._all(other, deeper)]
        kinds = _common_kinds([*ones, *others])
        if not kinds:
            return True
        lists = [{key(value) for value in listed} for _, says in [*ones, *others] if (listed := _listed(says)) is not None]
        if len(lists) > 1 and not set.intersection(*lists):
            return True
        if kinds <= {"integer", "fraction"} and _no_number([says for _, says in [*ones, *others]]):
            return True
        if kinds == {"object"} and self._objects_apart(ones, others, deeper):
            return True
        return self._branches_apart(ones, other, deeper) or self._branches_apart(others, one, deeper)

    def _branches_apart(self, ones: list[tuple[Place, dict[str, Any]]], other: Place, deeper: int) -> bool:
        return any(
            all(self._apart(branch, other, deeper - 1) for branch in place.each(keyword))
            for place, says in ones
            for keyword in ("anyOf", "oneOf")
            if keyword in says
        )

    def _objects_apart(self, ones: Any, others: Any, deeper: int) -> bool:
        needed, also = ({name for _, says in each if "required" in says for name in says["required"]} for each in (ones, others))
        if _shuts_out(needed, others) or _shuts_out(also, ones):
            return True
        pairs = [
            (mine.at("properties", name), yours.at("properties", name))
            for mine, says in ones
            for yours, says_too in others
            for name in says.get("properties", {}).keys() & says_too.get("properties", {}).keys() & needed & also
        ]
        return any(self._apart(*pair, deeper - 1) for pair in pairs)

    def _negation(self, place: Place, deeper: int) -> Any:
        if isinstance(place.schema, bool):
            return not place.schema
        says = self._step(place, deeper)
        return any_of(self._keyword(place, keyword, value, deeper - 1) for keyword, value in says.items())

    def _keyword(self, place: Place, keyword: str, value: Any, deeper: int) -> Any:
        match keyword:
            case "type":
                return _other_types(value)
            case "const":
                return _other_values([value])
            case "enum":
                return _other_values(value)
            case "required" if isinstance(value, list):
                return any_of({"type": "object", "properties": {name: False}} for name in value)
            case "properties":
                return any_of(
                    {"type": "object", "required": [name], "properties": {name: self._negation(place.at(keyword, name), deeper)}}
                    for name in value
                    if value[name] not in (True, {})
                )
            case "allOf":
                return any_of([self._negation(each, deeper) for each in place.each(keyword)])
            case "anyOf":
                return all_of([self._negation(each, deeper) for each in place.each(keyword)])
            case "$ref":
                return self._negation(self._document.target(place), deeper)
            case _ if keyword in _OPPOSITES and type_of(value) == "number" and exact(value):
                kind, opposite, step = _OPPOSITES[keyword]
                return {"type": kind, opposite: plain(value) + step}
        raise _Unknown


def _listed(says: dict[str, Any]) -> list[Any] | None:
    """The values in ``enum`` and ``const``; None without either."""
    if "enum" not in says:
        return [says["const"]] if "const" in says else None
    return [value for value in says["enum"] if "const" not in says or key(value) == key(says["const"])]


def _kinds(says: dict[str, Any]) -> set[str]:
    """Types of the values, by ``type``, ``enum`` and ``const``; numbers are integers or fractions."""
    kinds = {*TYPES, "integer", "fraction"} - {"number"}
    if "type" in says:
        names = {says["type"]} if isinstance(says["type"], str) else set(says["type"])
        kinds &= names | ({"integer", "fraction"} if "number" in names else set())
    if (listed := _listed(says)) is not None:
        kinds &= {_kind(value) for value in map(plain, listed)}
    return kinds


def _kind(value: Any) -> str:
    if type_of(value) != "number":
        return type_of(value)
    return "integer" if isinstance(value, int) else "fraction"


def _common_kinds(parts: list[tuple[Place, dict[str, Any]]]) -> set[str]:
    return set.intersection(*(_kinds(says) for _, says in parts)) if parts else {"object", "array"}


def _no_number(parts: list[dict[str, Any]]) -> bool:
    """Whether the bounds of ``parts`` leave no number."""
    least = max((says[each] for says in parts for each in ("minimum", "exclusiveMinimum") if type_of(says.get(each)) == "number"), default=None)
    most = min((says[each] for says in parts for each in ("maximum", "exclusiveMaximum") if type_of(says.get(each)) == "number"), default=None)
    if least is None or most is None:
        return False
    return least > most or (least == most and any(says.get("exclusiveMinimum") in (least, True) or says.get("exclusiveMaximum") in (most, True) for says in parts))


def _shuts_out(names: set[str], parts: list[tuple[Place, dict[str, Any]]]) -> bool:
    """Whether one of ``parts`` allows no property of one of ``names``."""
    return any(
        says.get("properties", {}).get(name, says.get("additionalProperties", True) if "patternProperties" not in says else True) is False
        for _, says in parts
        for name in names
    )


def _other_types(value: Any) -> Any:
    names = {value} if isinstance(value, str) else set(value)
    if "integer" in names and "number" not in names:
        raise _Unknown  # the compiler has no type of fractions
    others = [name for name in TYPES if name not in names]
    return {"type": others} if others else False


def _other_values(values: list[Any]) -> Any:
    """The schema of all values but ``values``."""
    if not exact(values):
        raise _Unknown
    return any_of([_others_of(kind, [plain(value) for value in values if type_of(value) == kind]) for kind in TYPES])


def _others_of(kind: str, values: list[Any]) -> Any:
    """The schema of the values of a type but ``values``."""
    if not values:
        return {"type": kind}
    match kind:
        case "null":
            return False
        case "boolean":
            return any_of({"const": each} for each in (False, True) if each not in values)
        case "number":
            ends = sorted(set(values))
            below = [{"type": "number", "exclusiveMaximum": ends[0]}, {"type": "number", "exclusiveMinimum": ends[-1]}]
            between = ({"type": "number", "exclusiveMinimum": first, "exclusiveMaximum": last} for first, last in zip(ends, ends[1:]))
            return any_of([*below, *between])
        case "string" if (pattern := all_but(values)) is not None:
            return {"type": "string", "pattern": pattern}
        case "array" if values == [[]]:
            return {"type": "array", "minItems": 1}
    raise _Unknown
