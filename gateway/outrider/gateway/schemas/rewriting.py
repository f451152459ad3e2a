"""Rewrites a schema into one that the compiler takes.

The result allows every value of the schema. Where it allows others, the keyword is in ``ignored``.
"""

from __future__ import annotations

import re
from typing import Any

from outrider.gateway.schemas import arrays, numbers, objects
from outrider.gateway.schemas.comparison import Comparison, kinds_of
from outrider.gateway.schemas.document import Document, MalformedSchema, Place
from outrider.gateway.schemas.keywords import IN_PLACE, NAMING, said
from outrider.gateway.schemas.parts import all_of, alternatives, any_of, references
from outrider.gateway.schemas.patterns import translated
from outrider.gateway.schemas.scope import Scope
from outrider.gateway.schemas.values import exact, plain

_COUNTS = ("minLength", "maxLength", "minItems", "maxItems")
_MOST_COUNTED = 2**31


class Rewriter:
    """Rewrites the schema of one document.

    Attributes:
        comparison: what is known of the document's schemas.
        ignored: JSON pointers to the keywords that are not enforced, in the order in which they are met.
    """

    def __init__(self, document: Document) -> None:
        self.ignored: dict[str, None] = {}
        self.comparison = Comparison(document)
        self._document = document
        self._names: dict[str, str] = {}
        self._waiting: list[Place] = []
        self._definition = ""
        self._merged: dict[str, set[str]] = {}

    def run(self) -> Any:
        """The rewritten schema; false if no value fits it."""
        rewritten = self.schema(self._document.root)
        definitions = {}
        while self._waiting:
            place = self._waiting.pop()
            self._definition = self._names[place.pointer]
            definitions[self._definition.rpartition("/")[2]] = self.schema(place)
        _require_ends(definitions)
        return {"$defs": definitions, **rewritten} if definitions and isinstance(rewritten, dict) else rewritten

    def ignore(self, place: Place, *keywords: str) -> None:
        """Notes that ``keywords`` at ``place`` are not enforced."""
        self.ignored |= dict.fromkeys(map(place.below, keywords))

    def schema(self, place: Place, scope: Scope | None = None) -> Any:
        """The rewritten schema at ``place``; ``scope`` is that of its value, if other schemas hold for it too."""
        if isinstance(place.schema, bool):
            return place.schema
        says, scope = said(place), scope or Scope()
        if "$ref" in says and self._document.old:
            says = {"$ref": says["$ref"]}
        scope.crowded = len(IN_PLACE & says.keys()) > 1 or not says.keys().isdisjoint(NAMING)
        parts: dict[str, Any] = {"": self._base(place, says, scope)}
        for keyword in says:
            if (rewrite := _IN_PLACE.get(keyword)) is not None:
                parts[keyword] = rewrite(self, place, says, scope)
        parts |= arrays.further(self, place, says, scope) | objects.further(self, place, says, scope)
        return self._together(place, says, parts)

    def pattern(self, place: Place, keyword: str, pattern: str) -> str | None:
        """``pattern`` for the compiler; None, and ``keyword`` ignored, if the compiler lacks a part of it."""
        try:
            translation = translated(pattern)
        except re.error as error:
            raise MalformedSchema(place.below(keyword), f"is no regular expression: {error}") from None
        if translation is None:
            self.ignore(place, keyword)
        return translation

    def taken(self, place: Place, keyword: str, schema: Any, scope: Scope) -> Any:
        """``schema``; true, and ``keyword`` ignored, if it is None or has too many alternatives."""
        if schema is not None and scope.take(schema):
            return schema
        self.ignore(place, keyword)
        return True

    def _together(self, place: Place, says: dict[str, Any], parts: dict[str, Any]) -> Any:
        """All ``parts``, but for references that the compiler would follow without end."""
        parts = {keyword: part for keyword, part in parts.items() if part not in (True, {})}
        for keyword in [*parts] if len(parts) > 1 else []:
            names = {*references(parts[keyword])}
            if not any(map(self._leads_back, names)):
                self._merged.setdefault(self._definition, set()).update(names)
            elif keyword == "$ref":
                self.ignore(place, *(other for other in says if other != "$ref"))
                return parts[keyword]
            else:
                self.ignore(place, keyword)
                del parts[keyword]
        return all_of(parts.values())

    def _leads_back(self, name: str) -> bool:
        """Whether the definition ``name`` is combined with the present one, which is combined with it."""
        waiting, seen = [name], set[str]()
        while waiting:
            name = waiting.pop()
            if name not in seen:
                seen.add(name)
                waiting += self._merged.get(name, ())
        return self._definition in seen

    def _base(self, place: Place, says: dict[str, Any], scope: Scope) -> dict[str, Any]:
        kept: dict[str, Any] = {keyword: says[keyword] for keyword in ("type", "format") if keyword in says}
        for keyword in {"enum", "const"} & says.keys():
            if exact(says[keyword]) and (scope.branch or kinds_of(says)):
                kept[keyword] = plain(says[keyword])
            else:
                self.ignore(place, keyword)
        kept |= {keyword: min(int(says[keyword]), _MOST_COUNTED) for keyword in _COUNTS if keyword in says}
        if "pattern" in says and (pattern := self.pattern(place, "pattern", says["pattern"])) is not None:
            kept["pattern"] = pattern
        kept |= numbers.base(self, place, says) | arrays.base(self, place, says)
        return kept | objects.base(self, place, says, scope)

    def _reference(self, place: Place, says: dict[str, Any], scope: Scope) -> Any:
        target = self._document.target(place)
        if target is None:
            self.ignore(place, "$ref")
            return True
        if isinstance(target.schema, bool):
            return target.schema
        if target.pointer not in self._names:
            self._names[target.pointer] = f"#/$defs/{len(self._names)}"
            self._waiting.append(target)
        return {"$ref": self._names[target.pointer]}

    def _every(self, place: Place, says: dict[str, Any], scope: Scope) -> Any:
        scope.shared = True
        return all_of([self.schema(each, scope) for each in place.each("allOf")])

    def _some(self, place: Place, says: dict[str, Any], scope: Scope) -> Any:
        schema = any_of([self.schema(each, scope.fork(beside=False)) for each in place.each("anyOf")])
        scope.ways *= alternatives(schema)
        return schema

    def _one(self, place: Place, says: dict[str, Any], scope: Scope) -> Any:
        """Of branches that may overlap, each with the negations of the others."""
        branches = [*place.each("oneOf")]
        written = [self.schema(each, scope.fork(beside=False)) for each in branches]
        overlaps = self.comparison.overlaps(branches)
        if overlaps is not None:
            negations = {each: self.comparison.negation(branches[each]) for pair in overlaps for each in pair}
            exclusive = None
            if None not in negations.values():
                excluded = [
                    [negations[other] for pair in overlaps for other in pair if each in pair and other != each]
                    for each in range(len(branches))
                ]
                exclusive = any_of(
                    [all_of([schema, *others]) for schema, others in zip(written, excluded, strict=True)]
                )
            if exclusive is not None and (not overlaps or scope.take(exclusive)):
                return exclusive
        self.ignore(place, "oneOf")
        return any_of(written)

    def _not(self, place: Place, says: dict[str, Any], scope: Scope) -> Any:
        return self.taken(place, "not", self.comparison.negation(place.at("not")), scope)

    def _if(self, place: Place, says: dict[str, Any], scope: Scope) -> Any:
        test, then, other = (
            self.schema(place.at(keyword), scope.fork()) if keyword in says else True
            for keyword in ("if", "then", "else")
        )
        negation = self.comparison.negation(place.at("if"))
        if negation is None:
            self.ignore(place, "if")
            negation = True
        return self.taken(place, "if", any_of([all_of([test, then]), all_of([negation, other])]), scope)

    def _unknown(self, place: Place, says: dict[str, Any], scope: Scope) -> Any:
        self.ignore(place, *({"$dynamicRef", "$recursiveRef"} & says.keys()))
        return True


def _require_ends(definitions: dict[str, Any]) -> None:
    """Raises `MalformedSchema` for definitions that name each other and say nothing else."""
    ended = set[str]()
    for name in definitions:
        trail: dict[str, None] = {}
        while name not in ended and isinstance(schema := definitions[name], dict) and schema.keys() == {"$ref"}:
            if name in trail:
                raise MalformedSchema("", "has a $ref that leads back to itself, and to nothing else")
            trail[name] = None
            name = schema["$ref"].rpartition("/")[2]
        ended.update(trail)


_IN_PLACE = {
    "$ref": Rewriter._reference,
    "$dynamicRef": Rewriter._unknown,
    "$recursiveRef": Rewriter._unknown,
    "allOf": Rewriter._every,
    "anyOf": Rewriter._some,
    "oneOf": Rewriter._one,
    "not": Rewriter._not,
    "if": Rewriter._if,
}
