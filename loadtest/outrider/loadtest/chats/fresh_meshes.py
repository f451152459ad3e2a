"""Measures mode ``on`` in fresh meshes, to compare with the same requests among others."""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from outrider.loadtest.chats import chat_turns, modes
from outrider.loadtest.chats.chat_request import ChatRequest
from outrider.loadtest.chats.chat_turns import ChatTurn
from outrider.loadtest.chats.supply import KINDS, ChatSupply
from outrider.loadtest.load.turns import Case

EDITS_AT = 0.7
FRESH, AFTER = "in a fresh mesh", "after stories"


def each_kind(
    options: argparse.Namespace, mixed: Mapping[tuple[Case, int], list[ChatRequest]]
) -> dict[str, list[ChatTurn]]:
    """Runs the requests of ``mixed`` turns again, each kind on its own mesh in mode ``on``; returns turns by kind."""
    turns: dict[str, list[ChatTurn]] = {}
    kinds = {request.kind for requests in mixed.values() for request in requests}
    for kind in (kind for kind in KINDS if kind in kinds):
        with modes.running(options, "on") as mesh:
            turns[kind] = [
                chat_turns.run_turn(mesh.url, f"on, {kind} alone", {}, case, kind_requests, repeat)
                for (case, repeat), requests in mixed.items()
                if (kind_requests := [request for request in requests if request.kind == kind])
            ]
    return turns


def after_stories(options: argparse.Namespace) -> dict[str, list[ChatTurn]]:
    """Runs edits at temperature 0.7 on a fresh mesh, and on a mesh that has just answered ``options.stories`` stories.

    Both meshes are as shipped and run all of ``options.concurrency``; the stories come first.
    """
    turns: dict[str, list[ChatTurn]] = {}
    for name in (FRESH, AFTER):
        supply = ChatSupply(options.seed, max_tokens=options.max_tokens)
        with modes.running(options, "on") as mesh:
            if name == AFTER:
                chat_turns.run_turn(
                    mesh.url, "on", {}, Case("story", None, 1), supply.take("story", options.stories), -1
                )
            turns[name] = _edits(options, mesh.url, name, supply)
    return turns


def _edits(options: argparse.Namespace, url: str, name: str, supply: ChatSupply) -> list[ChatTurn]:
    cases = [Case("edit", EDITS_AT, concurrency) for concurrency in options.concurrency]
    return [
        chat_turns.run_turn(
            url, name, {}, case, supply.take("edit", max(options.requests, case.concurrency), EDITS_AT), repeat
        )
        for repeat in range(options.repeats)
        for case in cases
    ]
