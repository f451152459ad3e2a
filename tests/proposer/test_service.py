"""A proposer as a process, with models that it cannot serve."""

from __future__ import annotations

from pathlib import Path

import pytest
from outrider.engine.models import pocket
from outrider.mesh.bus import Bus
from outrider.mesh.registry import Registry

from tests.processes import ServiceProcess, running
from tests.toy_model import save_toy


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_toy(tmp_path_factory.mktemp("toys") / "tiny", 64)


async def status(bus: Bus, instance: str) -> dict[str, object]:
    """What a proposer says of itself in the registry."""
    registry = Registry(bus, "test", "reader")
    await registry.start()
    members = await registry.wait_for("proposer", lambda all_: any(m.instance == instance for m in all_), 240)
    registry.leave()
    return next(member.status for member in members if member.instance == instance)


async def test_the_shipped_draft_model_is_idle_beside_another_target(
    bus: Bus, shared_nats: str, toy: Path, tmp_path: Path
) -> None:
    log = tmp_path / "proposer.log"
    with running("proposer", log, nats_url=shared_nats, target=toy, instance="proposer-idle") as process:
        process.wait_ready()
        said = await status(bus, "proposer-idle")
    assert (said["vocabulary"], said["drafter"]) == ("", "none")
    assert "idle: the shipped draft model does not guess for this target" in log.read_text()


async def test_the_shipped_draft_model_guesses_for_the_shipped_target(
    bus: Bus, shared_nats: str, tmp_path: Path
) -> None:
    log = tmp_path / "proposer.log"
    target = pocket.directory("target")
    with running("proposer", log, nats_url=shared_nats, target=target, instance="proposer-works") as process:
        process.wait_ready()
        assert (await status(bus, "proposer-works"))["drafter"] == "model"


def test_a_model_that_was_changed_is_refused(shared_nats: str, toy: Path, tmp_path: Path) -> None:
    settings = {"nats_url": shared_nats, "model": toy, "drafter": "ngram"}
    with running("proposer", tmp_path / "first.log", **settings) as process:
        process.wait_ready()
    (toy / "generation_config.json").write_text("{}")
    process = ServiceProcess("proposer", tmp_path / "second.log", **settings)
    process.start()
    assert process.wait() == 2
    assert "generation_config.json was not there at the first load" in process.last_lines()
