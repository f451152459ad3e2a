"""Modes in which chat requests are answered, and a mesh for each."""

from __future__ import annotations

import argparse
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

from outrider.loadtest.meshes import local_mesh
from outrider.loadtest.meshes.local_mesh import LocalMesh

SHIPPED = Path("pocket")
"""As ``--model``: the shipped pair."""


class Mode(NamedTuple):
    """A way of guessing: ``speculation`` of the requests, whether there is a draft model, the verifiers' program."""

    speculation: Any
    drafts: bool = True
    program: str | None = None


MODES = {
    "off": Mode("off", drafts=False),
    "control": Mode("off", drafts=False),
    "on": Mode({}),
    "always": Mode({}, program=local_mesh.ALWAYS),
    **{name: Mode({"drafters": [name]}) for name in ("model", "ngram", "suffix")},
}
"""``control`` is ``off`` a second time, ``on`` is as shipped."""


def running(options: argparse.Namespace, mode: str) -> AbstractContextManager[LocalMesh]:
    """A mesh for ``mode``, started as `outrider up` does with ``options.model``, ``.draft`` and ``.set``."""
    return local_mesh.running(**given(options, mode))


def given(options: argparse.Namespace, mode: str) -> dict[str, Any]:
    """What `local_mesh.running` is given for ``mode``."""
    model = None if options.model == SHIPPED else options.model
    draft = options.draft if MODES[mode].drafts else None
    settings = dict(each.split("=", 1) for each in options.set)
    return {
        "settings": settings,
        "proposers": None,
        "model": model,
        "draft": draft,
        "program": MODES[mode].program,
    }
