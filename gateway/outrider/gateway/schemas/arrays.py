"""The keywords of arrays."""

from __future__ import annotations

from itertools import permutations
from typing import TYPE_CHECKING, Any

from outrider.gateway.schemas.document import Place
from outrider.gateway.schemas.keywords import IN_PLACE
from outrider.gateway.schemas.parts import any_of
from outrider.gateway.schemas.scope import Scope
from outrider.gateway.schemas.values import TYPES, exact

if TYPE_CHECKING:
    from outrider.gateway.schemas.rewriting import Rewriter

_MOST_DIFFERENT = 5
"""Values of which all arrays without repeats are listed: 326 arrays."""


def base(rewriter: Rewriter, place: Place, says: dict[str, Any]) -> dict[str, Any]:
    """The keywords for items at their places."""
    kept: dict[str, Any] = {}
    listed, rest = ("items", "additionalItems") if isinstance(says.get("items"), list) else ("prefixItems", "items")
    if listed in says:
        kept["prefixItems"] = [rewriter.schema(each) for each in place.each(listed)]
    if rest in says:
        kept["items"] = rewriter.schema(place.at(rest))
    if "unevaluatedItems" in says and rest not in place.schema:
        if (IN_PLACE | {"contains"}) & place.schema.keys():
            rewriter.ignore(place, "unevaluatedItems")
        else:
            kept["items"] = rewriter.schema(place.at("unevaluatedItems"))
    return kept


def further(rewriter: Rewriter, place: Place, says: dict[str, Any], scope: Scope) -> dict[str, Any]:
    """Schemas for ``contains`` and ``uniqueItems``."""
    parts: dict[str, Any] = {}
    if "contains" in says:
        least = int(says.get("minContains", 1))
        if least or "maxContains" in says:
            rewriter.ignore(place, "contains")
        parts["contains"] = {"minItems": least} if least else True
    if "uniqueItems" in says and says.get("maxItems", 2) > 1:
        parts["uniqueItems"] = _different(rewriter, place, says)
    return parts


def _different(rewriter: Rewriter, place: Place, says: dict[str, Any]) -> Any:
    """All arrays without repeats where items have few values."""
    alike = isinstance(says.get("items"), dict) and "prefixItems" not in says
    values = rewriter.comparison.values(place.at("items")) if alike else None
    if values is None or not exact(values):
        rewriter.ignore(place, "uniqueItems")
        return True
    if len(values) > _MOST_DIFFERENT:
        rewriter.ignore(place, "uniqueItems")
        return {"maxItems": len(values)}
    arrays = [[*each] for length in range(len(values) + 1) for each in permutations(values, length)]
    return any_of([{"type": "array", "enum": arrays}, {"type": [each for each in TYPES if each != "array"]}])
