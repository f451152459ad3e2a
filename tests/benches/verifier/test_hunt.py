"""The hunt compares every answer with that of an engine without drafters."""

from __future__ import annotations

from outrider.benches.verifier.hunt import Hunt
from outrider.engine.settings import EngineSettings


def test_a_hunt_finds_nothing_where_nothing_is_wrong() -> None:
    hunt = Hunt(EngineSettings(audit_share=0.5), seed=3, load=2)
    hunt.round()
    assert (hunt.altered, hunt.counts["altered"]) == ([], 0)
    assert hunt.counts["streams"] >= 4
    assert hunt.counts["tokens"] > 300
    assert hunt.audits["same"] + hunt.audits["cancelled"] + hunt.audits["skipped"] > 0
    assert (hunt.audits["different"], hunt.audits["failed"]) == (0, 0)


def test_a_hunt_finds_answers_that_guesses_change() -> None:
    hunt = Hunt(EngineSettings(acceptance="typical"), seed=4, load=2)
    hunt.round()
    assert hunt.counts["altered"] == len(hunt.altered) > 0
    assert hunt.altered[0]["right"] != hunt.altered[0]["seen"]
