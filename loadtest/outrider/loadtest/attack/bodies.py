"""Bodies that are large, and parameters with long lists."""

from __future__ import annotations

import asyncio

from outrider.loadtest.attack.mesh import Mesh
from outrider.loadtest.attack.requests import body, expect_survival, post
from outrider.loadtest.attack.verdict import Attack, AttackLog

_COUNT = 10_000


async def _large(mesh: Mesh, log: AttackLog) -> None:
    prompts = ["a" * (9 << 20), "a " * (3 << 20), "\\u00e9" * (1 << 20), [1] * (1 << 20), "\n" * (7 << 20)]
    statuses = await asyncio.gather(*(post(mesh, body(prompt=prompt), log) for prompt in prompts))
    for status in statuses:
        if status and not 400 <= status < 500:
            log.problem(f"a prompt over the limits: {status}, not 4xx")


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
    Attack("body-large", "Bodies and prompts far over the limits.", _large),
    Attack("body-lists", "10,000 stop strings, biases and banned words, and 128 answers.", _lists),
]
