"""Modes of speculation for chat requests, and a mesh for each."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from outrider.loadtest.load.turns import installed_drafters
from outrider.measure import local_mesh
from outrider.measure.chats.chat_request import ChatRequest
from outrider.measure.local_mesh import LocalMesh

SHIPPED = Path("pocket")
"""The value of ``--model`` for the shipped pair."""


class Mode(NamedTuple):
    """``speculation`` of the requests, whether the mesh has a draft model, and the program of its verifiers.

    ``predicts`` says whose old text is a request's prediction: 0 its own, 1 that of the next request of the turn, so a
    wrong one; None for no predictions.
    """

    speculation: Any
    drafts: bool = True
    program: str | None = None
    predicts: int | None = None

    def predicted(self, requests: Sequence[ChatRequest]) -> list[ChatRequest]:
        """``requests`` with the predictions of this mode."""
        if self.predicts is None:
            return list(requests)
        return [
            msgspec.structs.replace(chat, prediction=requests[(place + self.predicts) % len(requests)].old)
            for place, chat in enumerate(requests)
        ]


MODES = {
    "off": Mode("off", drafts=False),
    "control": Mode("off", drafts=False),
    "on": Mode({}),
    "always": Mode({}, program=local_mesh.ALWAYS),
    **{name: Mode({"drafters": [name]}) for name in installed_drafters()},
    "prediction": Mode({}, predicts=0),
    "misprediction": Mode({}, predicts=1),
}
"""``control`` is a second ``off``; ``on`` is the default; the last two are ``on`` with right and wrong predictions."""


def running(options: argparse.Namespace, mode: str) -> AbstractContextManager[LocalMesh]:
    """Runs a mesh for ``mode``, as `outrider up` does with ``options.model``, ``.draft`` and ``.set``."""
    return local_mesh.running(**mesh_arguments(options, mode))


def mesh_arguments(options: argparse.Namespace, mode: str) -> dict[str, Any]:
    """Arguments of `local_mesh.running` for ``mode``."""
    model = None if options.model == SHIPPED else options.model
    draft = options.draft if MODES[mode].drafts else None
    settings = dict(text.split("=", 1) for text in options.set)
    return {
        "settings": settings,
        "proposers": None,
        "model": model,
        "draft": draft,
        "program": MODES[mode].program,
    }
