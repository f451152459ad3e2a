"""What the policy makes of requests in a fresh mesh, beside what it makes of them in company."""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from outrider.loadtest.chats import meshes, turns
from outrider.loadtest.chats.asked import Asked
from outrider.loadtest.chats.supply import KINDS, Supply
from outrider.loadtest.chats.turns import ChatTurn
from outrider.loadtest.load.turns import Case

EDITS_AT = 0.7
FRESH, AFTER = "in a fresh mesh", "after stories"


def each_kind(options: argparse.Namespace, mixed: Mapping[tuple[Case, int], list[Asked]]) -> dict[str, list[ChatTurn]]:
    """The requests of ``mixed`` turns once more, each kind by a mesh of its own with mode ``on``, by kind."""
    found: dict[str, list[ChatTurn]] = {}
    asked_for = {each.kind for asked in mixed.values() for each in asked}
    for kind in (kind for kind in KINDS if kind in asked_for):
        with meshes.running(options, "on") as mesh:
            found[kind] = [
                turns.take(mesh.url, f"on, {kind} alone", {}, case, some, repeat)
                for (case, repeat), asked in mixed.items()
                if (some := [each for each in asked if each.kind == kind])
            ]
    return found


def after_stories(options: argparse.Namespace) -> dict[str, list[ChatTurn]]:
    """Edits at temperature 0.7 by a fresh mesh, and the same by one that has just told ``options.stories`` stories.

    Both meshes are as shipped, and live for all of ``options.concurrency``; the stories are told before anything else.
    """
    found: dict[str, list[ChatTurn]] = {}
    for name in (FRESH, AFTER):
        supply = Supply(options.seed, most=options.max_tokens)
        with meshes.running(options, "on") as mesh:
            if name == AFTER:
                turns.take(mesh.url, "on", {}, Case("story", None, 1), supply.take("story", options.stories), -1)
            found[name] = _edits(options, mesh.url, name, supply)
    return found


def _edits(options: argparse.Namespace, url: str, name: str, supply: Supply) -> list[ChatTurn]:
    cases = [Case("edit", EDITS_AT, concurrency) for concurrency in options.concurrency]
    return [
        turns.take(url, name, {}, case, supply.take("edit", max(options.requests, case.concurrency), EDITS_AT), repeat)
        for repeat in range(options.repeats)
        for case in cases
    ]
