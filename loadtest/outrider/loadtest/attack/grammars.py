"""Grammars that are long, large or slow."""

from __future__ import annotations

from typing import Any

from outrider.loadtest.attack.mesh import Mesh
from outrider.loadtest.attack.requests import body, expect_survival
from outrider.loadtest.attack.verdict import Attack, AttackLog


def _schema(schema: dict[str, Any]) -> bytes:
    return body(structured_outputs={"json": schema})


def chain(links: int) -> dict[str, Any]:
    """A JSON Schema with a chain of definitions: each has a property of the next."""
    definitions: dict[str, Any] = {
        f"d{n}": {"type": "object", "properties": {"next": {"$ref": f"#/$defs/d{n + 1}"}}} for n in range(links)
    }
    return {"$ref": "#/$defs/d0", "$defs": definitions | {f"d{links}": {"type": "string"}}}


def rules(count: int) -> str:
    """A Lark grammar with a chain of rules: each is the next in brackets."""
    lines = ["start: r0", *(f'r{n}: "(" r{n + 1} ")"' for n in range(count)), f'r{count}: "a"']
    return "\n".join(lines)


async def _refs(mesh: Mesh, log: AttackLog) -> None:
    await expect_survival(mesh, [_schema(chain(1000))], log, "a chain of 1,000 definitions")


async def _lark(mesh: Mesh, log: AttackLog) -> None:
    await expect_survival(mesh, [body(structured_outputs={"grammar": rules(4000)})], log, "a chain of 4,000 rules")


async def _repeats(mesh: Mesh, log: AttackLog) -> None:
    patterns = ["a{1000000}", "(a{1000}){1000}", "((a{100}){100}){100}", "[a-z]{0,100000}", "(ab|cd){1,200000}"]
    await expect_survival(mesh, [body(structured_outputs={"regex": pattern}) for pattern in patterns], log, "a repeat")


async def _enums(mesh: Mesh, log: AttackLog) -> None:
    few, many = ([f"choice number {number}" for number in range(count)] for count in (8_000, 200_000))
    bodies = [_schema({"enum": few}), _schema({"enum": many})]
    bodies += [body(structured_outputs={"choice": few}), body(structured_outputs={"choice": many})]
    await expect_survival(mesh, bodies, log, "a large enum")


async def _ambiguous(mesh: Mesh, log: AttackLog) -> None:
    grammars = [
        "start: s\ns: s s s | s s | LETTER\nLETTER: /[a-z \\n(),:=]/",
        "start: (a | b | c)*\na: X*\nb: X* X*\nc: a b | b a\nX: /[a-z ]/",
        "start: /(.|\\n)*/ x /(.|\\n)*/ x /(.|\\n)*/\nx: /[a-z]*/ /[a-z]*/",
    ]
    bodies = [body(structured_outputs={"grammar": text}, max_tokens=300, temperature=1.0) for text in grammars]
    await expect_survival(mesh, bodies * 4, log, "an ambiguous grammar")


ATTACKS = [
    Attack("grammar-refs", "A JSON Schema with 1,000 definitions, each of which names the next.", _refs, cheap=True),
    Attack("grammar-lark", "A Lark grammar of 4,000 rules, each of which names the next.", _lark, cheap=True),
    Attack("grammar-repeats", "Patterns such as a{1000000}.", _repeats),
    Attack("grammar-enums", "Enums of 8,000 and of 200,000 texts.", _enums),
    Attack("grammar-ambiguous", "Grammars that parse a text in very many ways.", _ambiguous),
]
