"""The keywords of objects."""

from __future__ import annotations

from itertools import chain, combinations
from typing import TYPE_CHECKING, Any

from outrider.gateway.schemas.document import Place
from outrider.gateway.schemas.keywords import IN_PLACE, said
from outrider.gateway.schemas.parts import all_of, any_of
from outrider.gateway.schemas.scope import Scope

if TYPE_CHECKING:
    from outrider.gateway.schemas.rewriting import Rewriter

_MOST_OPTIONAL = 5
"""Optional properties of which all subsets are listed."""
_SIZES = ("minProperties", "maxProperties")
_DEPENDENT = ("dependentRequired", "dependentSchemas", "dependencies")


def base(rewriter: Rewriter, place: Place, says: dict[str, Any], scope: Scope) -> dict[str, Any]:
    """The keywords for properties by their names."""
    kept: dict[str, Any] = {}
    if "properties" in says:
        kept["properties"] = {name: rewriter.schema(place.at("properties", name)) for name in says["properties"]}
    rest = next((each for each in ("additionalProperties", "unevaluatedProperties") if each in says), None)
    known = rest != "unevaluatedProperties" or not IN_PLACE & place.schema.keys()
    patterns = {}
    for pattern in says.get("patternProperties", ()):
        translation = rewriter.pattern(place.at("patternProperties"), pattern, pattern)
        if translation is not None and scope.take_pattern(translation):
            patterns[translation] = rewriter.schema(place.at("patternProperties", pattern))
        else:
            rewriter.ignore(place.at("patternProperties"), pattern)
            known = False
    if patterns:
        kept["patternProperties"] = patterns
    if rest is not None and known:
        kept["additionalProperties"] = rewriter.schema(place.at(rest))
    elif rest is not None:
        rewriter.ignore(place, rest)
    if isinstance(says.get("required"), list):
        kept["required"] = [*dict.fromkeys(says["required"])]
    elif "required" in says:  # of draft 3: this property is required
        rewriter.ignore(place, "required")
    return kept


def further(rewriter: Rewriter, place: Place, says: dict[str, Any], scope: Scope) -> dict[str, Any]:
    """Schemas for the other keywords."""
    parts: dict[str, Any] = {}
    if "propertyNames" in says:
        parts["propertyNames"] = _names(rewriter, place, scope)
    sizes: dict[str, int] = {
        keyword: int(says[keyword]) for keyword in ("minProperties", "maxProperties") if keyword in says
    }
    if sizes:
        written = None if (IN_PLACE | {"propertyNames"}) & says.keys() or scope.shared else _sized(says, sizes)
        if written is None or not scope.take(written):
            rewriter.ignore(place, *sizes)
        else:
            parts["minProperties"] = written
    for keyword in _DEPENDENT:
        for name, needs in says.get(keyword, {}).items():
            inside = place.at(keyword)
            with_it = (
                {"required": [name, *needs]}
                if isinstance(needs, list)
                else rewriter.schema(inside.at(name), scope.fork())
            )
            either = any_of([{"properties": {name: False}}, with_it])
            parts[keyword] = all_of([parts.get(keyword, True), rewriter.taken(inside, name, either, scope)])
    return parts


def _names(rewriter: Rewriter, place: Place, scope: Scope) -> Any:
    """Properties with the names that ``propertyNames`` allows."""
    names = place.at("propertyNames")
    values = rewriter.comparison.values(names)
    if values is not None:
        allowed = [value for value in values if isinstance(value, str)]
        return {"properties": dict.fromkeys(allowed, True), "additionalProperties": False}
    says = {keyword: value for keyword, value in said(names).items() if (keyword, value) != ("type", "string")}
    pattern: str | None = None
    if says.keys() == {"pattern"}:
        pattern = rewriter.pattern(names, "pattern", says["pattern"])
    elif says and says.keys() <= {"minLength", "maxLength"}:
        most = int(says["maxLength"]) if "maxLength" in says else ""
        pattern = f"^[\\s\\S]{{{int(says.get('minLength', 0))},{most}}}$"
    if pattern is not None and scope.take_pattern(pattern):
        return {"patternProperties": {pattern: True}, "additionalProperties": False}
    if says:
        rewriter.ignore(place, "propertyNames")
    return True


def _sized(says: dict[str, Any], sizes: dict[str, int]) -> Any:
    """Objects of ``sizes``, which the compiler takes where no property is optional; None if there are too many."""
    required = says["required"] if isinstance(says.get("required"), list) else []
    optional = [name for name, each in says.get("properties", {}).items() if each is not False and name not in required]
    if not optional:
        return sizes
    if len(optional) <= _MOST_OPTIONAL:
        subsets = chain.from_iterable(combinations(optional, count) for count in range(len(optional) + 1))
        return any_of([_exactly(chosen, optional, sizes) for chosen in subsets])
    if sizes == {"minProperties": len(required) + 1}:
        return any_of([*({"required": [name]} for name in optional), _exactly((), optional, sizes)])
    return None


def _exactly(chosen: tuple[str, ...], optional: list[str], sizes: dict[str, int]) -> dict[str, Any]:
    """Of the ``optional`` properties, the ``chosen`` ones are there, and no other."""
    return {"required": [*chosen], "properties": {name: False for name in optional if name not in chosen}} | sizes
