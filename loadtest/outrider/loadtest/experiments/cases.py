"""Checks that features of requests hold together, that guesses change nothing, and that a killed verifier does not.

`python -m outrider.loadtest cases` draws cases in which every pair of features occurs: thoughts, calls, structure,
stops, choices, log-probabilities, in chats, responses and messages. Each case is asked whole and without speculation,
then streamed with it, then streamed while the verifier is killed; one that has a text that stops is asked without it,
too. Each answer is checked by its case, and the answers are compared. ``--model`` is copied with a template that opens
thoughts, if its own does not.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import uvloop
from outrider.loadtest import thresholds
from outrider.loadtest.cases import asking, checks
from outrider.loadtest.cases.bodies import body, stop_of
from outrider.loadtest.cases.features import FEATURES, Case, cases
from outrider.loadtest.cases.model import thinking
from outrider.loadtest.cases.views import View
from outrider.measure import local_mesh
from outrider.measure.local_mesh import LocalMesh

KINDS = ("refused", "invalid", "guesses", "killed")
"""What may be wrong: no answer, an answer by its case, and two differences to the answer without speculation."""
_SETTINGS = {
    "gateway.submit_s": "60",
    "gateway.place_s": "240",
    "gateway.resume_s": "240",
    "gateway.router_options": '{"sticky": true, "sticky_imbalance": 1000}',
    "verifier.drafters": '["ngram", "suffix", "random"]',
}
Found = dict[str, list[str]]
"""What is wrong with a case, by kind."""


def main(arguments: list[str] | None = None) -> int:
    """Asks all cases and prints a table by feature; returns 1 if anything is wrong, or no stream was disturbed."""
    options = _options(arguments)
    drawn = list(enumerate(cases(options.cases, options.seed)))
    chosen = [drawn[number] for number in options.only] if options.only else drawn
    settings = _SETTINGS | dict(text.split("=", 1) for text in options.set)
    with tempfile.TemporaryDirectory(prefix="outrider-cases-") as folder:
        model = thinking(options.model, Path(folder) / options.model.name)
        with local_mesh.running(settings, 2, proposers=0, model=model, program=local_mesh.ALWAYS) as mesh:
            run = Run(mesh, options.seed)
            uvloop.run(run.all(chosen, options.batch, options.minutes))
    return _conclude(options, dict(drawn), run)


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m outrider.loadtest cases", description=__doc__)
    parser.add_argument("--model", type=Path, metavar="DIR", required=True, help="a Hugging Face directory")
    parser.add_argument("--cases", type=int, default=500)
    parser.add_argument("--only", type=int, nargs="+", metavar="NUMBER", help="these of the cases alone")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--batch", type=int, default=10, help="requests at a time, and streams for each killed verifier"
    )
    parser.add_argument("--minutes", type=float, default=600.0, help="time limit; later cases are left out")
    parser.add_argument("--set", action="append", default=[], metavar="SERVICE.KEY=VALUE")
    parser.add_argument("--out", type=Path, help="JSON file for the figures")
    return parser.parse_args(arguments)


class Run:
    """Asks cases in batches; ``found`` has what is wrong with each case that was asked, by its number."""

    def __init__(self, mesh: LocalMesh, seed: int) -> None:
        self._mesh, self.killer = mesh, asking.Killer(mesh, seed)
        self.found: dict[int, Found] = {}
        self.tokens = 0

    async def all(self, chosen: Sequence[tuple[int, Case]], size: int, minutes: float) -> None:
        """Asks ``chosen`` cases, ``size`` at a time."""
        until = time.monotonic() + 60 * minutes
        async with asking.client_of(self._mesh) as client:
            for first in range(0, len(chosen), size):
                if time.monotonic() > until:
                    break
                await self._batch(client, chosen[first : first + size])
                wrong = sum(map(bool, self.found.values()))
                print(f"{len(self.found)} cases, {wrong} with something wrong, {self.tokens} tokens", flush=True)

    async def _batch(self, client: httpx.AsyncClient, batch: Sequence[tuple[int, Case]]) -> None:
        asked = [body(case, number) | {"user": f"batch {batch[0][0]}"} for number, case in batch]
        free = [body(case | {"stop": "none"}, number) for number, case in batch]
        stopped = [pair for pair in zip(batch, free, strict=True) if stop_of(pair[0][1])]
        # Twins belong to no session: the verifier that the batch leaves free computes them, and keeps their prompts.
        plain, twins = await asyncio.gather(
            self._each(client, asking.whole, batch, [made | {"speculation": "off"} for made in asked]),
            self._each(client, asking.whole, [each for each, _ in stopped], [made for _, made in stopped]),
        )
        told = await self._each(client, asking.streamed, batch, asked)
        twin_of = {number: twin for ((number, _), _), twin in zip(stopped, twins, strict=True)}
        killed = await self.killer.run(
            [partial(asking.streamed, client, case["api"], made) for (_, case), made in zip(batch, asked, strict=True)]
        )
        for (number, case), *answers in zip(batch, plain, told, killed, strict=True):
            self.found[number] = found = _judged(case, answers, twin_of.get(number))
            if isinstance(answers[0], View):
                self.tokens += answers[0].completion
            for kind, lines in found.items():
                print(f"case {number}, {kind}: {'; '.join(lines)}; {_told(case)}", flush=True)

    async def _each(
        self, client: httpx.AsyncClient, ask: Any, batch: Sequence[tuple[int, Case]], bodies: Sequence[dict[str, Any]]
    ) -> list[Any]:
        pairs = zip(batch, bodies, strict=True)
        asked = (ask(client, case["api"], made) for (_, case), made in pairs)
        return await asyncio.gather(*asked, return_exceptions=True)


def _judged(case: Case, three: Sequence[Any], twin: Any) -> Found:
    """What is wrong with the answers to ``case``: the plain one, one with guesses, and one whose verifier was killed.

    Each may be an exception; ``twin`` is None where there is no text that stops.
    """
    failed = [repr(why) for why in (*three, twin) if not isinstance(why, View | None)]
    if failed:
        return {"refused": failed}
    plain, told, killed = three
    wrong = [line for answer in three for line in checks.violations(case, answer)]
    wrong += [] if twin is None else checks.stops(case, plain, twin)
    found = {
        "invalid": sorted(set(wrong)),
        "guesses": checks.differences(plain, told),
        "killed": checks.differences(told, killed),
    }
    return {kind: lines for kind, lines in found.items() if lines}


def _told(case: Case) -> str:
    return ", ".join(f"{name} {value}" for name, value in case.items() if value != FEATURES[name][0])


def _conclude(options: argparse.Namespace, drawn: dict[int, Case], run: Run) -> int:
    print(f"\n{'feature':<24}{'cases':>7}" + "".join(f"{kind:>9}" for kind in KINDS))
    rows: dict[str, Counter[str]] = {}
    for number, found in run.found.items():
        for name in (*(f"{feature} {value}" for feature, value in drawn[number].items()), "all"):
            rows.setdefault(name, Counter()).update(["cases", *found])
    places = [f"{name} {value}" for name, values in FEATURES.items() for value in values]
    for name in [*(place for place in places if place in rows), "all"]:
        print(f"{name:<24}{rows[name]['cases']:>7}" + "".join(f"{rows[name][kind]:>9}" for kind in KINDS))
    killer = run.killer
    print(f"{killer.kills} verifiers were killed in the middle of {killer.disturbed} streams; {run.tokens} tokens")
    wrong = {number: found for number, found in run.found.items() if found}
    thresholds.publish(
        options.out, [], options=vars(options), table=rows, wrong=wrong, kills=killer.kills, disturbed=killer.disturbed
    )
    return int(bool(wrong) or not killer.disturbed)


if __name__ == "__main__":
    sys.exit(main())
