"""Rewrites a schema into one that the compiler takes.

The result allows every value of the schema. Where it allows others, the keyword is in ``ignored``.
"""

from __future__ import annotations

import re
from itertools import combinations, permutations
from typing import Any

from outrider.gateway.schemas.document import Document, MalformedSchema, Place
from outrider.gateway.schemas.keywords import IN_PLACE, said
from outrider.gateway.schemas.negation import Comparison
from outrider.gateway.schemas.parts import MOST_ALTERNATIVES, all_of, alternatives, any_of, inner
from outrider.gateway.schemas.patterns import translated
from outrider.gateway.schemas.values import exact, plain, type_of

_COUNTS = ("minLength", "maxLength", "minItems", "maxItems")
_BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
_MOST_COUNTED = 2**31
_MOST_STEPS = 20_000
"""Largest divisor of ``multipleOf`` without its decimal point: the compiler has a state for each remainder."""
_MOST_DIFFERENT = 5
"""Values of which arrays without repeats are listed: 326 arrays."""
_MOST_OPTIONAL = 5
"""Optional properties of which all subsets are listed."""
_DISTINCT = re.compile(r"\^(\w)(?![*?{])[^|]*")
"""A pattern whose texts all begin with its first letter."""


class _Scope:
    """What holds for one value so far: its alternatives, and the patterns of its properties."""

    def __init__(self, ways: int = 1, patterns: tuple[str, ...] = (), shared: bool = False) -> None:
        self.ways, self.patterns, self.shared = ways, patterns, shared

    def fork(self) -> _Scope:
        """A scope for one of several alternatives."""
        return _Scope(self.ways, self.patterns, True)

    def share(self) -> _Scope:
        """This scope, for a schema that holds beside others."""
        self.shared = True
        return self

    def take(self, schema: Any) -> bool:
        """Whether there is room for the alternatives of ``schema``, which then count."""
        ways = self.ways * alternatives(schema)
        if ways <= MOST_ALTERNATIVES:
            self.ways = ways
        return ways <= MOST_ALTERNATIVES

    def take_pattern(self, pattern: str) -> bool:
        """Whether the compiler can tell ``pattern`` from the patterns before; it then is one of them."""
        others = [other for other in self.patterns if other != pattern]
        heads = [_DISTINCT.fullmatch(each) for each in (pattern, *others)]
        if others and (None in heads or len({head[1] for head in heads if head}) < len(heads)):
            return False
        self.patterns = (*others, pattern)
        return True


class Rewriter:
    """Rewrites the schema of one document.

    Attributes:
        ignored: JSON pointers to the keywords that are not enforced, in the order in which they are met.
    """

    def __init__(self, document: Document) -> None:
        self.ignored: dict[str, None] = {}
        self._document = document
        self._comparison = Comparison(document)
        self._names: dict[str, str] = {}
        self._waiting: list[Place] = []
        self._definition = ""
        self._merged: dict[str, set[str]] = {}

    def run(self) -> Any:
        """The rewritten schema; false if no value fits it."""
        rewritten = self._schema(self._document.root)
        definitions = {}
        while self._waiting:
            place = self._waiting.pop()
            self._definition = self._names[place.pointer]
            definitions[self._definition] = self._schema(place)
        return {"$defs": definitions, **rewritten} if definitions and isinstance(rewritten, dict) else rewritten

    def _ignore(self, place: Place, *keywords: str) -> None:
        for keyword in keywords:
            self.ignored[place.at(keyword).pointer] = None

    def _schema(self, place: Place, scope: _Scope | None = None) -> Any:
        """The rewritten schema at ``place``; ``scope`` is that of the value if other schemas hold for it too."""
        if isinstance(place.schema, bool):
            return place.schema
        says, scope = said(place), scope or _Scope()
        if "$ref" in says and self._document.old:
            says = {"$ref": says["$ref"]}
        base = self._simple(place, says) | self._arrays(place, says) | self._objects(place, says, scope)
        parts: dict[str, Any] = {"": base}
        for keywords, method in _METHODS:
            if found := [keyword for keyword in says if keyword in keywords]:
                parts[found[0]] = method(self, place, says, scope)
        return self._together(place, says, parts)

    def _together(self, place: Place, says: dict[str, Any], parts: dict[str, Any]) -> Any:
        """All ``parts``, but for references that the compiler would follow without end."""
        parts = {keyword: part for keyword, part in parts.items() if part not in (True, {})}
        for keyword in [*parts] if len(parts) > 1 else []:
            names = {each["$ref"] for each in inner(parts[keyword]) if "$ref" in each}
            if not names:
                continue
            if not any(self._reaches(name) for name in names):
                self._merged.setdefault(self._definition, set()).update(names)
            elif keyword == "$ref":
                self._ignore(place, *(other for other in says if other != "$ref"))
                return parts[keyword]
            else:
                self._ignore(place, keyword)
                del parts[keyword]
        return all_of(parts.values())

    def _reaches(self, ref: str) -> bool:
        """Whether the compiler comes from the definition at ``ref`` to the present one without a bare reference."""
        waiting, seen = [ref], set[str]()
        while waiting:
            name = waiting.pop()
            if name.rpartition("/")[2] == self._definition:
                return True
            if name not in seen:
                seen.add(name)
                waiting += self._merged.get(name.rpartition("/")[2], ())
        return False

    def _reference(self, place: Place, says: dict[str, Any], scope: _Scope) -> Any:
        target = self._document.target(place)
        if isinstance(target.schema, bool):
            return target.schema
        if target.pointer not in self._names:
            self._names[target.pointer] = str(len(self._names))
            self._waiting.append(target)
        return {"$ref": f"#/$defs/{self._names[target.pointer]}"}

    def _simple(self, place: Place, says: dict[str, Any]) -> dict[str, Any]:
        """The keywords of all values, numbers and texts."""
        kept: dict[str, Any] = {}
        for keyword in ("type", "format"):
            if keyword in says:
                kept[keyword] = says[keyword]
        for keyword in ("enum", "const"):
            if keyword not in says:
                continue
            if exact(says[keyword]):
                kept[keyword] = plain(says[keyword])
            else:
                self._ignore(place, keyword)
        for keyword in _COUNTS:
            if keyword in says:
                kept[keyword] = min(int(says[keyword]), _MOST_COUNTED)
        if "pattern" in says and (pattern := self._pattern(place, says["pattern"])) is not None:
            kept["pattern"] = pattern
        return kept | self._numbers(place, says)

    def _pattern(self, place: Place, pattern: str, keyword: str = "pattern") -> str | None:
        try:
            translation = translated(pattern)
        except re.error as error:
            raise MalformedSchema(f"{place.pointer}/{keyword}", f"is no regular expression: {error}") from None
        if translation is None:
            self._ignore(place, keyword)
        return translation

    def _numbers(self, place: Place, says: dict[str, Any]) -> dict[str, Any]:
        kept: dict[str, Any] = {}
        for keyword in _BOUNDS:
            bound = says.get(keyword)
            if bound is True:  # draft 4: the bound beside it is exclusive
                bound = says.get(keyword.removeprefix("exclusive").lower())
            if bound is not None and exact(bound):
                kept[keyword] = plain(bound)
            elif bound is not None:
                self._ignore(place, keyword)
        if "multipleOf" in says:
            digits = f"{says['multipleOf']:.9f}".rstrip("0")
            if float(digits) == says["multipleOf"] and int(digits.replace(".", "")) <= _MOST_STEPS:
                kept["multipleOf"] = plain(says["multipleOf"])
            else:
                self._ignore(place, "multipleOf")
        return kept

    def _arrays(self, place: Place, says: dict[str, Any]) -> dict[str, Any]:
        kept: dict[str, Any] = {}
        listed = "items" if isinstance(says.get("items"), list) else "prefixItems"
        rest = "additionalItems" if listed == "items" else "items"
        if listed in says:
            kept["prefixItems"] = [self._schema(each) for each in place.each(listed)]
        if rest in says:
            kept["items"] = self._schema(place.at(rest))
        if "unevaluatedItems" in says and "items" not in place.schema:
            if IN_PLACE & says.keys() or "contains" in says:
                self._ignore(place, "unevaluatedItems")
            else:
                kept["items"] = self._schema(place.at("unevaluatedItems"))
        return kept

    def _contains(self, place: Place, says: dict[str, Any], scope: _Scope) -> Any:
        least, most = int(says.get("minContains", 1)), says.get("maxContains")
        if says["contains"] not in (True, {}) and (least or most is not None):
            self._ignore(place, "contains")
        elif says["contains"] in (True, {}) and most is not None:
            return {"minItems": least, "maxItems": int(most)}
        return {"minItems": least} if least else True

    def _different(self, place: Place, says: dict[str, Any], scope: _Scope) -> Any:
        """Arrays without repeats: all are listed where items have few values."""
        most = says.get("maxItems", _MOST_COUNTED)
        if most <= 1:
            return True
        values = None if "prefixItems" in says or isinstance(says.get("items", []), list) else self._comparison.values(place.at("items"))
        if values is None or not all(map(exact, values)):
            self._ignore(place, "uniqueItems")
            return True
        if len(values) > _MOST_DIFFERENT:
            self._ignore(place, "uniqueItems")
            return {"maxItems": len(values)}
        lengths = range(int(says.get("minItems", 0)), min(len(values), int(most)) + 1)
        arrays = [list(each) for length in lengths for each in permutations(values, length)]
        others = [each for each in ("null", "boolean", "number", "string", "object") if not _excludes(says, each)]
        return any_of([{"type": "array", "enum": arrays}, {"type": others} if others else False])

    def _objects(self, place: Place, says: dict[str, Any], scope: _Scope) -> dict[str, Any]:
        kept: dict[str, Any] = {}
        if "properties" in says:
            kept["properties"] = {name: self._schema(place.at("properties", name)) for name in says["properties"]}
        rest = next((each for each in ("additionalProperties", "unevaluatedProperties") if each in says), None)
        if rest == "unevaluatedProperties" and IN_PLACE & says.keys():
            self._ignore(place, rest)
            rest = None
        patterns = self._patterns(place, says, scope)
        if patterns is None:
            self._ignore(place, *([rest] if rest else []))
            rest = None
        elif patterns:
            kept["patternProperties"] = patterns
        if rest is not None:
            kept["additionalProperties"] = self._schema(place.at(rest))
        required = says.get("required", [])
        if isinstance(required, bool):  # of draft 3, where a property says that it is required
            self._ignore(place, "required")
        elif required:
            kept["required"] = list(dict.fromkeys(required))
        return kept

    def _patterns(self, place: Place, says: dict[str, Any], scope: _Scope) -> dict[str, Any] | None:
        """The rewritten ``patternProperties``; None if the compiler cannot tell the patterns apart."""
        kept, fit = {}, True
        for pattern in says.get("patternProperties", {}):
            translation = self._pattern(place.at("patternProperties"), pattern, pattern)
            if translation is not None and scope.take_pattern(translation):
                kept[translation] = self._schema(place.at("patternProperties", pattern))
            else:
                self._ignore(place.at("patternProperties"), pattern)
                fit = False
        if not fit and says.get("additionalProperties", True) is True:
            return kept
        return kept if fit else None

    def _property_names(self, place: Place, says: dict[str, Any], scope: _Scope) -> Any:
        names = place.at("propertyNames")
        if names.schema is False:
            return {"additionalProperties": False}
        values = self._comparison.values(names)
        asked = {keyword: value for keyword, value in said(names).items() if keyword != "type"}
        lengths = {"minLength", "maxLength"}
        pattern = None
        if _excludes(said(names), "string"):
            return {"additionalProperties": False}
        if values is not None:
            allowed = [value for value in values if isinstance(value, str)]
            return {"properties": dict.fromkeys(allowed, True), "additionalProperties": False}
        if asked.keys() == {"pattern"}:
            pattern = self._pattern(names, asked["pattern"])
        elif asked.keys() <= lengths:
            most = int(asked["maxLength"]) if "maxLength" in asked else ""
            pattern = f"^[\\s\\S]{{{int(asked.get('minLength', 0))},{most}}}$"
        if not asked or pattern is not None and scope.take_pattern(pattern):
            return {"patternProperties": {pattern: True}, "additionalProperties": False} if pattern else True
        self._ignore(place, "propertyNames")
        return True

    def _sizes(self, place: Place, says: dict[str, Any], scope: _Scope) -> Any:
        """``minProperties`` and ``maxProperties``; the compiler takes them where no property is optional."""
        sizes = {keyword: int(says[keyword]) for keyword in _SIZES if keyword in says}
        required = says.get("required", [])
        optional = [name for name, each in says.get("properties", {}).items() if each is not False and name not in required]
        written: Any = None
        if not optional:
            written = sizes
        elif len(optional) <= _MOST_OPTIONAL:
            subsets = [chosen for count in range(len(optional) + 1) for chosen in combinations(optional, count)]
            written = any_of(_exactly(chosen, optional, sizes) for chosen in subsets)
        elif sizes == {"minProperties": len(required) + 1}:
            written = any_of([*({"required": [name]} for name in optional), _exactly((), optional, sizes)])
        if scope.shared or _WITH_NAMES & says.keys() or written is None or not scope.take(written):
            self._ignore(place, *sizes)
            return True
        return written

    def _every(self, place: Place, says: dict[str, Any], scope: _Scope) -> Any:
        return all_of([self._schema(each, scope.share()) for each in place.each("allOf")])

    def _some(self, place: Place, says: dict[str, Any], scope: _Scope) -> Any:
        schema = any_of([self._schema(each, scope.fork()) for each in place.each("anyOf")])
        scope.ways *= alternatives(schema)
        return schema

    def _one(self, place: Place, says: dict[str, Any], scope: _Scope) -> Any:
        """Branches that exclude each other, or that are made to."""
        branches = [*place.each("oneOf")]
        written = [self._schema(each, scope.fork()) for each in branches]
        overlaps = self._comparison.overlaps(branches)
        others = None if overlaps is None else {each: self._comparison.negation(branches[each]) for pair in overlaps for each in pair}
        if others is not None and None not in others.values():
            exclusive = any_of(
                all_of([schema, *(others[second if first == place_ else first] for first, second in overlaps or () if place_ in (first, second))])
                for place_, schema in enumerate(written)
            )
            if not overlaps or scope.take(exclusive):
                return exclusive
        self._ignore(place, "oneOf")
        return any_of(written)

    def _not(self, place: Place, says: dict[str, Any], scope: _Scope) -> Any:
        return self._taken(place, "not", self._comparison.negation(place.at("not")), scope)

    def _if(self, place: Place, says: dict[str, Any], scope: _Scope) -> Any:
        then, other = (self._schema(place.at(each), scope.fork()) if each in says else True for each in ("then", "else"))
        test, negation = self._schema(place.at("if"), scope.fork()), self._comparison.negation(place.at("if"))
        if negation is None:
            self._ignore(place, "if")
            negation = True
        return self._taken(place, "if", any_of([all_of([test, then]), all_of([negation, other])]), scope)

    def _dependents(self, place: Place, says: dict[str, Any], scope: _Scope) -> Any:
        parts = []
        for keyword in _DEPENDENTS & says.keys():
            for name, needs in says[keyword].items():
                inside = place.at(keyword)
                with_it = {"required": [name, *needs]} if isinstance(needs, list) else self._schema(inside.at(name), scope.fork())
                parts.append(self._taken(inside, name, any_of([{"properties": {name: False}}, with_it]), scope))
        return all_of(parts)

    def _unknown(self, place: Place, says: dict[str, Any], scope: _Scope) -> Any:
        self._ignore(place, *(_DYNAMIC & says.keys()))
        return True

    def _taken(self, place: Place, keyword: str, schema: Any, scope: _Scope) -> Any:
        """``schema`` if it is known and its alternatives have room; else the keyword is ignored."""
        if schema is not None and scope.take(schema):
            return schema
        self._ignore(place, keyword)
        return True


def _exactly(chosen: tuple[str, ...], optional: list[str], sizes: dict[str, int]) -> Any:
    """Of the ``optional`` properties, the ``chosen`` ones are there, and no other."""
    return {"required": [*chosen], "properties": {name: False for name in optional if name not in chosen}} | sizes


def _excludes(says: dict[str, Any], kind: str) -> bool:
    """Whether ``type`` excludes all values of ``kind``."""
    names = says.get("type", kind)
    return kind not in names and (kind != "number" or "integer" not in names)


_SIZES = ("minProperties", "maxProperties")
_DEPENDENTS = {"dependentRequired", "dependentSchemas", "dependencies"}
_DYNAMIC = {"$dynamicRef", "$recursiveRef"}
_WITH_NAMES = IN_PLACE | {"propertyNames"} - {"dependencies", "dependentSchemas"}
_METHODS = (
    ({"$ref"}, Rewriter._reference),
    (_DYNAMIC, Rewriter._unknown),
    ({"allOf"}, Rewriter._every),
    ({"anyOf"}, Rewriter._some),
    ({"oneOf"}, Rewriter._one),
    ({"not"}, Rewriter._not),
    ({"if"}, Rewriter._if),
    ({"contains"}, Rewriter._contains),
    ({"uniqueItems"}, Rewriter._different),
    ({"propertyNames"}, Rewriter._property_names),
    (set(_SIZES), Rewriter._sizes),
    (_DEPENDENTS, Rewriter._dependents),
)
