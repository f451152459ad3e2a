"""BFCL's functions: what verifiers enforce of their parameters, tried with the arguments of its answers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import jsonschema_rs

from tests.outside.archives import members
from tests.outside.enforcing import Tried
from tests.outside.tally import Tally

_TYPES = {
    **dict.fromkeys(("integer", "byte", "short", "long", "Bigint"), "integer"),
    **dict.fromkeys(("number", "float", "double"), "number"),
    **dict.fromkeys(("boolean", "bool"), "boolean"),
    **dict.fromkeys(("array", "list", "tuple", "ArrayList", "Array", "Queue", "Stack"), "array"),
    **dict.fromkeys(("object", "dict", "HashMap", "Hashtable"), "object"),
}
"""JSON Schema's names of BFCL's types; every other one is a string."""


def test_parameters_are_enforced() -> None:
    tally, seen = Tally("BFCL's functions"), set[str]()
    for name, _, parameters in _functions():
        if (text := json.dumps(parameters)) not in seen:
            seen.add(text)
            tried = Tried(parameters)
            kind = "refused" if tried.refusal else "partly" if tried.ignored else "right"
            tally.add(kind, f"{name}: {tried.refusal}{', '.join(tried.ignored)}")
    tally.close(partly=23)


def test_arguments_are_allowed_as_the_schema_says() -> None:
    tally = Tally("BFCL's arguments")
    functions = {(number, name): parameters for name, number, parameters in _functions()}
    for number, name, given in _answers():
        if (parameters := functions.get((number, name))) is None:
            continue
        tried, validator = Tried(parameters), jsonschema_rs.Draft202012Validator(parameters)
        for arguments in _variants(_arguments(parameters, given)):
            is_valid = validator.is_valid(arguments)
            tally.add(tried.kind(arguments, is_valid), f"{number}: {name}: {json.dumps(arguments)}")
    tally.close(partly=3)


def _functions() -> Iterator[tuple[str, str, Any]]:
    """BFCL's functions: their names, the cases that they belong to, and the schemas of their parameters."""
    for entry in _entries("bfcl_eval/data/BFCL_*.json", '"parameters"'):
        for function in entry["function"]:
            if "parameters" in function:
                yield function["name"], entry["id"], _with_types(function["parameters"], "object")
    for function in _entries("bfcl_eval/data/multi_turn_func_doc/*.json", '"parameters"'):
        yield function["name"], "", _with_types(function["parameters"], "object")


def _answers() -> Iterator[tuple[str, str, Any]]:
    """The calls that BFCL takes for right: case, function, and a list of values for each argument."""
    for entry in _entries("bfcl_eval/data/possible_answer/*.json", '"ground_truth": [{"'):
        for call in entry["ground_truth"]:
            yield from ((entry["id"], name, given) for name, given in call.items())


def _entries(pattern: str, holding: str) -> Iterator[Any]:
    for data in members("bfcl-eval", pattern).values():
        yield from (json.loads(line) for line in data.decode().splitlines() if holding in line)


def _arguments(schema: Any, given: Any) -> Any:
    """The first of the given values of each argument, in the schema's order; an empty one stands for none."""
    arguments = {}
    for name in schema.get("properties", {}):
        if (values := given.get(name, [""])) and (value := values[0]) != "":
            inner = schema["properties"][name]
            is_nested = isinstance(value, dict) and all(isinstance(each, list) for each in value.values())
            arguments[name] = _arguments(inner, value) if is_nested else value
    return arguments


def _variants(arguments: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The arguments, the same without the first one, and with an object or a text in its place."""
    yield arguments
    for name in list(arguments)[:1]:
        yield {each: value for each, value in arguments.items() if each != name}
        yield {**arguments, name: "text" if isinstance(arguments[name], dict) else {"no": "text"}}


def _with_types(schema: Any, kind: str | None = None) -> Any:
    """A schema with JSON Schema's names of types, as BFCL itself names them for OpenAI's API."""
    changed = {**schema, "type": kind or _TYPES.get(schema.get("type"), "string")}
    if "properties" in changed:
        changed["properties"] = {name: _with_types(each) for name, each in changed["properties"].items()}
    if "items" in changed:
        changed["items"] = _with_types(changed["items"])
    return changed
