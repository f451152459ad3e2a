"""The processes of a mesh, before they start."""

from __future__ import annotations

from pathlib import Path

from outrider.cli.options import ONE_EACH, UpOptions
from outrider.cli.plan import make_plan


def test_verifiers_that_compute_prompts_come_beside_those_that_are_asked_for(tmp_path: Path) -> None:
    options = UpOptions(port=0, counts={**ONE_EACH, "verifier": 2}, prefills=1, log_dir=tmp_path)
    verifiers = [spec for spec in make_plan(options).services if spec.kind == "verifier"]
    assert ["--role=prefill" in spec.command for spec in verifiers] == [False, False, True]
    assert len({spec.log for spec in verifiers}) == 3
