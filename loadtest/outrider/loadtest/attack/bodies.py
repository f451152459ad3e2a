"""Bodies that are deep, large, ambiguous or no JSON."""

from __future__ import annotations

import asyncio

from outrider.loadtest.attack.mesh import Mesh
from outrider.loadtest.attack.requests import (
    COMPLETIONS,
    authorization,
    body,
    expect_refusals,
    expect_survival,
    head,
    open_connection,
    post,
)
from outrider.loadtest.attack.verdict import Attack, AttackLog

_DEPTHS = 1000, 100_000
_ANSWER_S = 20.0
_COUNT = 10_000


def deep(depth: int) -> list[bytes]:
    """Bodies with arrays and objects nested ``depth`` deep, as a parameter, as a schema and as the body."""
    arrays, objects = b"[" * depth + b"]" * depth, b'{"a":' * depth + b"1" + b"}" * depth
    places = [b'{"prompt": %s}', b'{"prompt": "a", "structured_outputs": {"json": %s}}', b"%s"]
    return [place.replace(b"%s", value) for place in places for value in (arrays, objects)]


async def _nesting(mesh: Mesh, log: AttackLog) -> None:
    for depth in _DEPTHS:
        await expect_refusals(mesh, deep(depth), log, f"nesting of {depth:,}")


async def _ambiguous(mesh: Mesh, log: AttackLog) -> None:
    """Two keys, the first of them valid; and one parameter twice."""
    right = f"Authorization: {authorization(mesh)['authorization']}"
    data = body()
    for url in mesh.urls:
        async with open_connection(url) as connection:
            lines = head(COMPLETIONS, right, "Authorization: Bearer sk-other", length=len(data))
            await connection.send(lines + b"\r\n" + data)
            status = await connection.status(_ANSWER_S)
        log.answer(status)
        if not status.startswith("4"):
            log.problem(f"two Authorization headers: {status}, not 4xx")
    await expect_refusals(mesh, [b'{"prompt": "a", "max_tokens": 1, "max_tokens": 2}'], log, "a parameter twice")


async def _foreign(mesh: Mesh, log: AttackLog) -> None:
    for kind in ("text/plain", "application/x-www-form-urlencoded"):
        await expect_refusals(mesh, [body()], log, f"a body of {kind}", **{"content-type": kind})


async def _large(mesh: Mesh, log: AttackLog) -> None:
    await expect_refusals(mesh, [body(prompt="a" * (9 << 20))], log, "a body of 9 MiB")
    prompts = ["a " * (3 << 20), "\\u00e9" * (1 << 20), [1] * (1 << 20), "\n" * (7 << 20)]
    statuses = await asyncio.gather(
        *(post(mesh, gateway, body(prompt=prompt), log) for prompt in prompts for gateway in range(len(mesh.urls)))
    )
    for status in statuses:
        if status and not 400 <= status < 500:
            log.problem(f"a prompt over the context: {status}, not 4xx")


async def _lists(mesh: Mesh, log: AttackLog) -> None:
    bodies = [
        body(stop=[f"stop {number}" for number in range(_COUNT)]),
        body(stop=["a" * 1_000_000]),
        body(logit_bias={str(number): 1 for number in range(_COUNT)}),
        body(bad_words=[f"word {number}" for number in range(_COUNT)]),
        body(n=128, max_tokens=64),
    ]
    await expect_survival(mesh, bodies, log, "a long list")


ATTACKS = [
    Attack("body-nesting", "JSON that is nested 1,000 and 100,000 deep.", _nesting, cheap=True),
    Attack("body-ambiguous", "Two Authorization headers, and a parameter twice.", _ambiguous),
    Attack("body-foreign", "Bodies of other content types, as a page's form sends them.", _foreign),
    Attack("body-large", "Bodies and prompts far over the limits.", _large),
    Attack("body-lists", "10,000 stop strings, biases and banned words, and 128 answers.", _lists),
]
