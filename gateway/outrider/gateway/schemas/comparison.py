"""What is known of schemas: their values, whether they exclude each other, and their negations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any

from outrider.gateway.schemas.document import Document, Place
from outrider.gateway.schemas.keywords import said
from outrider.gateway.schemas.numbers import tellable, values_between
from outrider.gateway.schemas.parts import all_of, any_of
from outrider.gateway.schemas.patterns import all_but
from outrider.gateway.schemas.values import TYPES, exact, key, plain, type_of

_MOST_STEPS = 10_000
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
_KINDS = frozenset({*TYPES, "integer", "fraction"} - {"number"})

_Part = tuple[Place, dict[str, Any]]


class _Unknown(Exception):
    """A schema that is too complex."""


class Comparison:
    """Compares schemas of one document, with a bound on the work."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._left = _MOST_STEPS
        self._known: dict[int, dict[str, Any]] = {}

    def values(self, place: Place) -> list[Any] | None:
        """All values of the schema at ``place``, if it lists them and says nothing else; else None."""
        try:
            return [*{key(value): plain(value) for value in self._values(place, _DEEPEST)}.values()]
        except _Unknown:
            return None

    def overlaps(self, places: Sequence[Place]) -> list[tuple[int, int]] | None:
        """The pairs of ``places`` that may have a value in common; None if there are too many to tell."""
        pairs = combinations(range(len(places)), 2)
        try:
            return [(one, two) for one, two in pairs if not self._apart(places[one], places[two], _DEEPEST)]
        except _Unknown:
            return None

    def negation(self, place: Place) -> Any:
        """The schema of all values that do not fit the one at ``place``; None if the compiler has none."""
        try:
            return self._negation(place, _DEEPEST)
        except _Unknown:
            return None

    def _said(self, place: Place, deeper: int) -> dict[str, Any]:
        self._left -= 1
        if self._left < 0 or deeper < 0 or place.schema is True:
            raise _Unknown
        if (says := self._known.get(id(place.schema))) is None:
            says = self._known[id(place.schema)] = said(place)
        return says

    def _target(self, place: Place) -> Place:
        target = self._document.target(place)
        if target is None:
            raise _Unknown
        return target

    def _values(self, place: Place, deeper: int) -> list[Any]:
        if place.schema is False:
            return []
        says = self._said(place, deeper)
        if says.keys() == {"$ref"}:
            return self._values(self._target(place), deeper - 1)
        if says.keys() == {"anyOf"}:
            return [value for each in place.each("anyOf") for value in self._values(each, deeper - 1)]
        if says.keys() <= {"type", "enum", "const"} and (listed := _listed(says)) is not None:
            kinds = kinds_of(says)
            return [value for value in listed if _kind(value) in kinds]
        if says.keys() == {"type"} and kinds_of(says) <= {"null", "boolean"}:
            return [value for value in (None, False, True) if type_of(value) in kinds_of(says)]
        raise _Unknown

    def _parts(self, place: Place, deeper: int) -> Iterator[_Part]:
        """The schema at ``place`` and those that hold wherever it does, each with what it says."""
        if isinstance(place.schema, bool):
            return
        says = self._said(place, deeper)
        yield place, says
        if "$ref" in says:
            yield from self._parts(self._target(place), deeper - 1)
        for each in place.each("allOf") if "allOf" in says else ():
            yield from self._parts(each, deeper - 1)

    def _apart(self, one: Place, two: Place, deeper: int) -> bool:
        """Whether no value fits both; false may be wrong."""
        if False in (one.schema, two.schema):
            return True
        sides = [[*self._parts(place, deeper)] for place in (one, two)]
        spoken = [says for side in sides for _, says in side]
        kinds = _KINDS.intersection(*map(kinds_of, spoken))
        lists = [set(map(key, listed)) for says in spoken if (listed := _listed(says)) is not None]
        if not kinds or (lists and not set.intersection(*lists)):
            return True
        return kinds == {"object"} and self._objects_apart(sides[0], sides[1], deeper)

    def _objects_apart(self, one: list[_Part], two: list[_Part], deeper: int) -> bool:
        needed, needed_too = ({name for _, says in side for name in _required(says)} for side in (one, two))
        if _forbid(two, needed) or _forbid(one, needed_too):
            return True
        return any(
            self._apart(place.at("properties", name), place_too.at("properties", name), deeper - 1)
            for place, says in one
            for place_too, says_too in two
            for name in needed & needed_too & says.get("properties", {}).keys() & says_too.get("properties", {}).keys()
        )

    def _negation(self, place: Place, deeper: int) -> Any:
        if isinstance(place.schema, bool):
            return not place.schema
        says = self._said(place, deeper)
        return any_of([self._opposite(place, keyword, value, deeper - 1) for keyword, value in says.items()])

    def _opposite(self, place: Place, keyword: str, value: Any, deeper: int) -> Any:
        """The schema of all values that do not fit one keyword."""
        match keyword:
            case "type" if kinds_of({"type": value}) & {"integer", "fraction"} != {"integer"}:
                return {"type": [kind for kind in TYPES if kind != value and kind not in value]}
            case "const" | "enum" if exact(value):
                values = [plain(each) for each in (value if keyword == "enum" else [value])]
                return any_of([_others_of(kind, [each for each in values if type_of(each) == kind]) for kind in TYPES])
            case "required" if isinstance(value, list):
                return any_of([{"type": "object", "properties": {name: False}} for name in value])
            case "properties":
                negations = {name: self._negation(place.at(keyword, name), deeper) for name in value}
                return any_of(
                    [
                        {"type": "object", "required": [name], "properties": {name: each}}
                        for name, each in negations.items()
                        if each is not False
                    ]
                )
            case "allOf":
                return any_of([self._negation(each, deeper) for each in place.each(keyword)])
            case "anyOf":
                return all_of([self._negation(each, deeper) for each in place.each(keyword)])
            case "$ref":
                return self._negation(self._target(place), deeper)
        if keyword in _OPPOSITES and type_of(value) == "number" and exact(value):
            kind, opposite, step = _OPPOSITES[keyword]
            bounds = {opposite: plain(value) + step}
            if tellable(bounds):
                return {"type": kind} | bounds if plain(value) + step >= 0 or not step else False
        raise _Unknown


def _listed(says: dict[str, Any]) -> list[Any] | None:
    """The values in ``enum`` and ``const``; None without either."""
    if "enum" not in says:
        return [says["const"]] if "const" in says else None
    return [value for value in says["enum"] if "const" not in says or key(value) == key(says["const"])]


def kinds_of(says: dict[str, Any]) -> set[str]:
    """The types of values by ``type``, ``enum`` and ``const``; a number is an integer or a fraction."""
    names = says.get("type", _KINDS)
    kinds = {names} if isinstance(names, str) else set(names)
    if "number" in kinds:
        kinds |= {"integer", "fraction"}
    listed = _listed(says)
    return kinds & (_KINDS if listed is None else set(map(_kind, listed)))


def _kind(value: Any) -> str:
    if type_of(value) != "number":
        return type_of(value)
    return "integer" if isinstance(plain(value), int) else "fraction"


def _required(says: dict[str, Any]) -> list[str]:
    return says["required"] if isinstance(says.get("required"), list) else []


def _forbid(parts: list[_Part], names: set[str]) -> bool:
    """Whether ``parts`` allow no property of one of ``names``."""
    return any(
        says.get("properties", {}).get(name, "patternProperties" in says or says.get("additionalProperties")) is False
        for _, says in parts
        for name in names
    )


def _others_of(kind: str, values: list[Any]) -> Any:
    """The schema of the values of a type but ``values``, which are of that type."""
    if not values:
        return {"type": kind}
    match kind:
        case "null":
            return False
        case "boolean":
            return any_of([{"const": each} for each in (False, True) if each not in values])
        case "number" if all(map(tellable, bounds := values_between(values))):
            return any_of([{"type": kind} | each for each in bounds])
        case "string" if (pattern := all_but(values)) is not None:
            return {"type": "string", "pattern": pattern}
        case "array" if not any(values):
            return {"type": "array", "minItems": 1}
    raise _Unknown
