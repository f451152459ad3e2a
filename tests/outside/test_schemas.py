"""The JSON-Schema-Test-Suite and BFCL's functions: what verifiers enforce of schemas."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from llguidance import LLMatcher
from outrider.gateway.schemas.document import MalformedSchema
from outrider.gateway.schemas.enforced import enforced

from tests.gateway.schemas.compiling import allows, compiled
from tests.outside.archives import members
from tests.outside.tally import Tally

_NO_VALUE = re.compile(r"Unsatisfiable|.*no value fits")
_MEANT = (
    "format.json: ",  # formats are enforced, where the suite takes them for annotations
    "vocabulary.json: schema that uses custom metaschema with with no validation vocabulary",  # keywords count always
    "ref.json: ref overrides any sibling keywords",  # as in every draft since 2019-09, keywords beside a $ref count
    "ref.json: $ref prevents a sibling $id from changing the base uri",
)
"""Cases that Outrider decides in another way on purpose."""
_TYPES = {
    **dict.fromkeys(("integer", "byte", "short", "long", "Bigint"), "integer"),
    **dict.fromkeys(("number", "float", "double"), "number"),
    **dict.fromkeys(("boolean", "bool"), "boolean"),
    **dict.fromkeys(("array", "list", "tuple", "ArrayList", "Array", "Queue", "Stack"), "array"),
    **dict.fromkeys(("object", "dict", "HashMap", "Hashtable"), "object"),
}
"""JSON Schema's names of BFCL's types; every other one is a string."""


@pytest.mark.parametrize(
    ("draft", "most"),
    [("draft2020-12", {"partly": 133, "meant": 11}), ("draft7", {"partly": 46, "meant": 3})],
)
def test_instances_of_the_suite_are_allowed_as_it_says(draft: str, most: dict[str, int]) -> None:
    tally = Tally(f"JSON-Schema-Test-Suite, {draft}")
    for path, data in members("jsonschema", f"*/json/tests/{draft}/*.json").items():
        file = path.partition(f"{draft}/")[2]
        for case in json.loads(data) if "/" not in file else []:
            tried = _Tried(case["schema"])
            for test in case["tests"]:
                name = f"{file}: {case['description']}: {test['description']}"
                tally.add(tried.kind(test["data"], test["valid"], name.startswith(_MEANT)), name)
    tally.close(**most)


def test_parameters_of_bfcl_s_functions_are_enforced() -> None:
    tally = Tally("BFCL's functions")
    for name, parameters in _functions():
        tried = _Tried(_with_types(parameters, "object"))
        kind = "refused" if tried.refusal else "partly" if tried.ignored else "right"
        tally.add(kind, f"{name}: {tried.refusal}{', '.join(tried.ignored)}")
    tally.close(partly=23)


def _functions() -> Iterator[tuple[str, Any]]:
    """BFCL's functions by file and name, and their parameters; those with the same parameters once."""
    seen = set[str]()
    for path, data in members("bfcl-eval", "bfcl_eval/data/*.json").items():
        for line in (line for line in data.decode().splitlines() if '"parameters"' in line):
            entry = json.loads(line)
            for function in entry.get("function", [entry]):
                parameters = function.get("parameters")
                if parameters is not None and (text := json.dumps(parameters)) not in seen:
                    seen.add(text)
                    yield f"{Path(path).name}: {function['name']}", parameters


def _with_types(schema: Any, kind: str | None = None) -> Any:
    """A schema with JSON Schema's names of types, as BFCL itself names them for OpenAI's API."""
    changed = {**schema, "type": kind or _TYPES.get(schema.get("type"), "string")}
    if "properties" in changed:
        changed["properties"] = {name: _with_types(each) for name, each in changed["properties"].items()}
    if "items" in changed:
        changed["items"] = _with_types(changed["items"])
    return changed


class _Tried:
    """A schema, as far as it is enforced.

    Attributes:
        refusal: why it is refused; empty if it is not.
        ignored: the keywords that are not enforced.
    """

    def __init__(self, schema: Any) -> None:
        self._matcher: LLMatcher | None = None
        self.refusal, self.ignored = "", tuple[str, ...]()
        try:
            kept = enforced(schema)
            self.ignored, self._matcher = kept.ignored, compiled(kept.schema)
        except (MalformedSchema, ValueError) as error:
            self.refusal = str(error)

    def kind(self, instance: Any, is_valid: bool, is_meant: bool = False) -> str:
        """What it says to an instance: right, refused, partly (not enforced), meant, narrow or wrong."""
        if self._matcher is None and not _NO_VALUE.match(self.refusal):
            return "refused"
        if (self._matcher is not None and allows(self._matcher, _written(instance))) == is_valid:
            return "right"
        return "meant" if is_meant else "narrow" if is_valid else "partly" if self.ignored else "wrong"


def _written(value: Any) -> Any:
    """A value with whole numbers as models write them: ``1.0`` as ``1``."""
    if isinstance(value, dict):
        return {name: _written(each) for name, each in value.items()}
    if isinstance(value, list):
        return list(map(_written, value))
    return int(value) if isinstance(value, float) and value.is_integer() else value
