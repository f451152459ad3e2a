"""Hostile grammars over HTTP: large, deep, slow to compile or to follow, and malformed."""

from __future__ import annotations

from typing import Any

from outrider.loadtest.attack.grammars import chain, rules

from tests.gateway.hostile.bodies import asked
from tests.gateway.hostile.case import SERVED, Case


def _json(**schema: Any) -> dict[str, Any]:
    return {"json": schema}


def _nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "integer"}
    for _ in range(depth):
        schema = {"type": "array", "items": schema}
    return schema


def _case(name: str, what: str, says: str, outputs: dict[str, Any], answer: str = "400") -> Case:
    return asked(name, what, says, answer, structured_outputs=outputs, max_tokens=4)


CASES = [
    _case("schema-chain", "a JSON Schema of 1,000 definitions, each of which names the next", "",
          _json(**chain(1000)), SERVED),
    _case("schema-deep", "a JSON Schema nested 90 deep", "", _json(**_nested(90)), SERVED),
    _case("schema-deeper", "a JSON Schema nested 120 deep", "nests deeper than 100", _json(**_nested(120))),
    _case("schema-remote", "a schema that refers to another host, which is not fetched", "",
          _json(**{"$ref": "http://169.254.169.254/schema.json"}), SERVED),
    _case("schema-loop", "a schema that refers to itself alone", "", _json(**{"$ref": "#"})),
    _case("schema-enum", "an enumeration of 20,000 texts", "structured_outputs",
          _json(enum=[f"choice number {number}" for number in range(20_000)])),
    _case("schema-large", "a JSON Schema of 400 kB", "at most 262144 in all", _json(const="a" * 400_000)),
    _case("schema-pattern", "a pattern with a billion states", "structured_outputs",
          _json(type="string", pattern="^(a{1000}){1000}$")),
    _case("schema-unknown", "a type that JSON does not have", "structured_outputs", _json(type="number!")),
    _case("regex-repeat", "`a{1000000}`", "structured_outputs", {"regex": "a{1000000}"}),
    _case("regex-heavy", "`(a|b){15000}`: each token takes long", "", {"regex": "(a|b){15000}"}, SERVED),
    _case("regex-nested", "50,000 nested groups", "structured_outputs", {"regex": "(" * 50_000 + "a" + ")" * 50_000}),
    _case("regex-broken", "an expression that does not close", "structured_outputs", {"regex": "(a"}),
    _case("grammar-chain", "a Lark grammar of 4,000 rules, each of which names the next", "",
          {"grammar": rules(4000)}, SERVED),
    _case("grammar-ambiguous", "a grammar that parses a text in very many ways", "",
          {"grammar": "start: s\ns: s s s | s s | LETTER\nLETTER: /[a-z ]/"}, f"{SERVED} or 400"),
    _case("grammar-broken", "a grammar with an unknown rule", "structured_outputs", {"grammar": "start: nothing"}),
    _case("choice-none", "no choices", "structured_outputs", {"choice": []}),
    _case("outputs-two", "two definitions at once", "structured_outputs", {"regex": "a", "choice": ["a"]}),
]  # fmt: skip
