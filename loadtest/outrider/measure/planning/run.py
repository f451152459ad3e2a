"""Runs the measurement of a profile, on a given mesh or on one that it starts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import httpx
import uvloop
from outrider.measure import local_mesh
from outrider.measure.planning.measure import KINDS, Wanted, measure
from outrider.measure.planning.profile import Profile
from outrider.mesh.access import Access, access_to


def given(wanted: Wanted) -> Profile:
    """The profile of the mesh at ``wanted.access``."""
    named = replace(wanted, model=served_model(wanted.access))
    return uvloop.run(measure(named, lambda line: print(line, flush=True)))


def started(wanted: Wanted, settings: dict[str, str], verifiers: int, model: str | None, draft: str | None) -> Profile:
    """The profile of a mesh that runs meanwhile, with ``settings`` by ``service.key``."""
    paths = (model and Path(model), draft and Path(draft))
    with local_mesh.running(settings, verifiers, None, model=paths[0] or None, draft=paths[1] or None) as mesh:
        return given(replace(wanted, access=access_to(mesh.url), metrics=mesh.metrics_urls(KINDS)))


def served_model(access: Access) -> str:
    """Name of the model that a mesh serves."""
    headers = {"Authorization": f"Bearer {access.key}"} if access.key else {}
    verify = access.context() if access.url.startswith("https") else True
    answer = httpx.get(f"{access.url}/v1/models", headers=headers, verify=verify, trust_env=False)
    return str(answer.raise_for_status().json()["data"][0]["id"])
