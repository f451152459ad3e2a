"""Checks that guesses, batches, replicas, preemptions, fetched pages and hang-ups do not change answers.

`python -m outrider.loadtest identity` completes held-out prompts at several temperatures, each with a seed: first one
at a time without speculation, then in every way that could make a difference. It counts answers whose tokens, text or
log-probabilities differ. Some clients hang up in mid-stream; the part that they received is compared. ``--model`` and
``--draft`` replace the shipped pair; only the shipped target has Medusa heads. ``--with`` adds parameters that change
draws: the bits of a prompt's number choose among them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import time
from contextlib import aclosing
from pathlib import Path
from typing import Any

import msgspec
import uvloop
from outrider.loadtest import thresholds
from outrider.loadtest.load.answers import Answer, agrees
from outrider.loadtest.load.mixes import MIXED, ComparedRequest, compared_requests
from outrider.loadtest.meshes.page_sources import SOURCES, PageSource
from outrider.measure import local_mesh
from outrider.measure.load.client import read_events
from outrider.measure.local_mesh import LocalMesh

_PLAIN = ["random", "ngram", "suffix"]
"""Local drafters that need no model."""
_SMALL_PAGE = 4
"""Tokens of a page in meshes with too few pages: an answer needs several pages beyond its prompt."""
_PREEMPTIONS = "outrider_verifier_preemptions_total"
Answers = dict[int, Answer]


class Outcome(msgspec.Struct, frozen=True):
    """One pass: answers compared, left early and different; guesses verified and accepted."""

    drafters: str
    concurrency: int
    verifiers: int
    pages: int | None
    compared: int
    left: int
    different: int
    guesses: int
    accepted: int
    seconds: float
    pages_are: str = "computed"

    def __str__(self) -> str:
        """One line for the terminal."""
        scarce = f", {self.pages} pages" if self.pages else ""
        run = (
            f"{self.drafters:>6}, {self.concurrency:2} at a time, {self.verifiers} verifiers{scarce}, {self.pages_are}"
        )
        guesses = f"{self.accepted} of {self.guesses} guesses accepted"
        return f"{run}: {self.different} of {self.compared} differ ({self.left} left early, {guesses})"


def main() -> int:
    """Runs every pass and prints a line each; returns 1 if a strict answer differed, or a pass that should preempt
    sequences or fetch pages did not."""
    options = _options()
    passes: list[Outcome] = []
    requests = compared_requests(_most(options), options.max_tokens, options.mixed)
    with _mesh(options, 1) as mesh:
        expected = uvloop.run(_ask(mesh.url, requests, "off", 1, 0.0))
        print(
            f"one at a time, off: {len(expected)} answers, {sum(a.tokens for a in expected.values())} tokens",
            flush=True,
        )
        passes += _passes(options, mesh, requests, expected, 1)
    with _mesh(options, 2) as mesh:
        passes += _passes(options, mesh, requests, expected, 2)
    with _mesh(options, 1, options.pages) as mesh:
        most = max(options.concurrency)
        for name in ("none", "all"):
            passes.append(_pass(options, mesh, requests, expected, name, most, 1, options.pages))
        preempted = mesh.metric("verifier", _PREEMPTIONS)
    fetched = [_add_fetching_passes(options, source, requests, expected, passes) for source in SOURCES]
    return _conclude(options, passes, preempted, fetched)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m outrider.loadtest identity", description=__doc__)
    local_mesh.add_models(parser)
    parser.add_argument("--generations", type=int, default=10_000, help="answers to compare over all passes")
    parser.add_argument("--concurrency", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--max-tokens", type=int, default=20)
    parser.add_argument("--hang-up", type=float, default=0.1, help="share of clients that hang up in mid-stream")
    pages_help = f"pages of {_SMALL_PAGE} tokens of the verifier that has too few"
    parser.add_argument("--pages", type=int, default=400, help=pages_help)
    parser.add_argument("--determinism", choices=["strict", "fast"], default="strict")
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument(
        "--with", dest="mixed", nargs="*", choices=list(MIXED), default=list(MIXED), help="parameters by name"
    )
    parser.add_argument("--out", type=Path, help="JSON file for the figures")
    options = parser.parse_args()
    if min(options.generations, options.pages, options.max_tokens, *options.concurrency) < 1:
        parser.error("numbers must be at least 1")
    if not 0 <= options.hang_up <= 1:
        parser.error("--hang-up is a share, from 0 to 1")
    return options


def _drafters(options: argparse.Namespace) -> list[str]:
    """Local drafters; a proposer runs ``model`` as well."""
    if options.model is None:
        return [*_PLAIN, "medusa", "model"]
    return [*_PLAIN, "model"] if options.draft else _PLAIN


def _speculation(options: argparse.Namespace) -> dict[str, Any]:
    """The field ``speculation`` of requests, by the name of a pass."""
    drafters = _drafters(options)
    return {"none": "off", **{name: {"drafters": [name]} for name in drafters}, "all": {"drafters": drafters}}


def _size(options: argparse.Namespace, concurrency: int) -> int:
    """Answers of a pass; passes with more concurrency have more, since they take no longer."""
    weights = [clients**0.5 for clients in options.concurrency]
    share = concurrency**0.5 / (sum(weights) * 2 * len(_speculation(options)))
    return int(-(-options.generations * share // 1))


def _most(options: argparse.Namespace) -> int:
    return max(_size(options, concurrency) for concurrency in options.concurrency)


def _mesh(
    options: argparse.Namespace, verifiers: int, pages: int | None = None, source: PageSource | None = None
) -> Any:
    settings = {
        "verifier.determinism": options.determinism,
        "verifier.dtype": options.dtype,
        "verifier.drafters": json.dumps(_drafters(options)),
    }
    models = {"model": options.model, "draft": options.draft, "program": local_mesh.ALWAYS}
    if options.draft is not None:
        settings["verifier.options.model.model"] = str(options.draft)
    elif options.model is not None:
        models["proposers"] = 0
    scarce = {"verifier.pages": str(pages), "verifier.page_size": str(_SMALL_PAGE)} if pages else {}
    if source is not None:
        return local_mesh.running(settings | dict(source.settings), verifiers, **source.processes, **models)
    return local_mesh.running(settings | scarce, verifiers, **models)


def _add_fetching_passes(
    options: argparse.Namespace,
    source: PageSource,
    requests: list[ComparedRequest],
    expected: Answers,
    passes: list[Outcome],
) -> float | None:
    """Adds the passes of ``source``; returns tokens whose pages were fetched, None if none should be."""
    most = max(options.concurrency)
    with _mesh(options, 1, source=source) as mesh:
        for pages_are in source.passes:
            passes.append(_pass(options, mesh, requests, expected, "all", most, 1, pages_are=pages_are))
        return source.fetched_tokens(mesh)


def _passes(
    options: argparse.Namespace, mesh: LocalMesh, requests: list[ComparedRequest], expected: Answers, verifiers: int
) -> list[Outcome]:
    return [
        _pass(options, mesh, requests, expected, name, concurrency, verifiers)
        for name in _speculation(options)
        for concurrency in options.concurrency
    ]


def _pass(
    options: argparse.Namespace,
    mesh: LocalMesh,
    requests: list[ComparedRequest],
    expected: Answers,
    name: str,
    concurrency: int,
    verifiers: int,
    pages: int | None = None,
    pages_are: str = "computed",
) -> Outcome:
    began = time.monotonic()
    pass_requests = requests[: _size(options, concurrency)]
    answers = uvloop.run(_ask(mesh.url, pass_requests, _speculation(options)[name], concurrency, options.hang_up))
    outcome = Outcome(
        drafters=name,
        concurrency=concurrency,
        verifiers=verifiers,
        pages=pages,
        compared=len(answers),
        left=sum(not answer.whole for answer in answers.values()),
        different=sum(not agrees(answer, expected[number]) for number, answer in answers.items()),
        guesses=sum(answer.accepted + answer.rejected for answer in answers.values()),
        accepted=sum(answer.accepted for answer in answers.values()),
        seconds=round(time.monotonic() - began, 1),
        pages_are=pages_are,
    )
    print(outcome, flush=True)
    return outcome


async def _ask(
    url: str, requests: list[ComparedRequest], speculation: Any, concurrency: int, hang_up: float
) -> Answers:
    answers: Answers = {}
    draw, remaining = random.Random(f"{speculation} {concurrency}"), iter(requests)

    async def client() -> None:
        for request in remaining:
            events = draw.randrange(1, 12) if draw.random() < hang_up else None
            answers[request.number] = await _answer(url, request.body | {"speculation": speculation}, events)

    await asyncio.gather(*(client() for _ in range(concurrency)))
    return answers


async def _answer(url: str, body: dict[str, Any], events: int | None) -> Answer:
    """The mesh's answer to ``body``; with ``events``, the client hangs up after that many events."""
    answer = Answer()
    request = {**body, "stream": True, "stream_options": {"include_usage": True}}
    async with aclosing(read_events(url, request)) as stream:
        count = 0
        async for data in stream:
            answer.add(msgspec.json.decode(data))
            count += 1
            if count == events:
                break
    if events is None and not answer.whole:
        raise RuntimeError(f"a stream broke off: {body}")
    return answer


def _conclude(
    options: argparse.Namespace, passes: list[Outcome], preempted: float | None, fetched: list[float | None]
) -> int:
    different, compared = (sum(getattr(outcome, name) for outcome in passes) for name in ("different", "compared"))
    shown = "not counted by this verifier" if preempted is None else f"{preempted:.0f}"
    print(f"{options.determinism}, {options.dtype}: {different} of {compared} answers differ; preemptions: {shown}")
    counts = [tokens for tokens in fetched if tokens is not None]
    print(f"tokens whose pages were fetched: {', '.join(f'{tokens:.0f}' for tokens in counts)}")
    totals = {"compared": compared, "different": different, "preemptions": preempted, "from_elsewhere": counts}
    thresholds.publish(options.out, [], **totals, options=vars(options), passes=passes)
    return int((different > 0 and options.determinism == "strict") or preempted == 0 or 0 in counts)


if __name__ == "__main__":
    sys.exit(main())
