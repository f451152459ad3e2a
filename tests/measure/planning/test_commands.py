from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from outrider.cli.main import app
from outrider.measure.load.client import Reply
from outrider.measure.planning import reduce
from outrider.measure.planning.profile import FORMAT, Limits, Profile, PromptCost, StepPoint
from outrider.measure.planning.reduce import Measured
from outrider.measure.planning.scrape import Snapshot
from outrider.measure.planning.search import Plan
from typer.testing import CliRunner

LIMITS = Limits(max_running=8, max_waiting=256, prefill_rows=256, max_rows=320, pages=512, page_size=16)
ASK = ("--rate", "5", "--prompt-tokens", "100", "--answer-tokens", "20")


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    points = [StepPoint(1, 1, 0.01, 1.0), StepPoint(8, 1, 0.02, 1.0)]
    path = tmp_path / "profile.json"
    Profile(
        FORMAT, {}, "m", {}, LIMITS, points, points, PromptCost(0.009, 2e-5), {}, 0.0, [(100, 20)], 1.0, {}, {}
    ).save(path)
    return path


def run(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["plan", *arguments])
    return done.exit_code, done.output


def test_a_plan_is_written_as_it_is_printed(profile, tmp_path):
    out = tmp_path / "plan.json"
    code, text = run(str(profile), *ASK, "--price-per-hour", "verifier=2", "--out", str(out))
    assert code == 0, text
    assert msgspec.json.decode(out.read_bytes(), type=Plan).replicas["verifier"] >= 1
    assert out.read_text() in text


@pytest.mark.parametrize("value", ["verifier", "verifier=x", "broker=1", "verifier=-1", "verifier=nan"])
def test_a_price_that_is_none_gets_one_sentence(profile, value):
    code, text = run(str(profile), *ASK, "--price-per-hour", value)
    assert (code, text.count("\n")) == (2, 1)
    assert "it is written KIND=NUMBER" in text


def test_a_file_that_is_no_profile_gets_one_sentence(tmp_path):
    (tmp_path / "a.json").write_text("{}")
    code, text = run(str(tmp_path / "a.json"), *ASK)
    assert (code, text.count("\n")) == (2, 1)
    assert "cannot read a profile" in text


def load(
    requests: int,
    tokens: int,
    steps: float,
    prefilled: float,
    step_s: float,
    row_s: float,
    curve: dict[str, float] | None = None,
) -> Measured:
    """A load of one stream whose services behave exactly."""
    values = {
        ("verifier", "verifier_steps_total", ""): steps,
        ("verifier", "verifier_prefilled_tokens_total", ""): prefilled,
        ("verifier", "verifier_rows_total", ""): prefilled + tokens - requests,
        ("verifier", "spec_acceptance_length_count", ""): tokens - requests,
        ("verifier", "spec_acceptance_length_sum", ""): tokens - requests,
        ("verifier", "verifier_step_part_seconds_total", "forward"): steps * step_s + prefilled * row_s,
        ("verifier", "verifier_step_part_seconds_total", "publish"): 1000.0,
        ("gateway", "process_cpu_seconds_total", ""): 0.002 * requests + 1e-5 * tokens,
    }
    values |= {("verifier", "verifier_step_cost_seconds", rows): seconds for rows, seconds in (curve or {}).items()}
    reply = Reply([0.1], 100, 25, tokens // requests, 0, 0, 1)
    return Measured("m", [reply] * requests, 0.1, Snapshot(values), Snapshot(values))


def test_loads_are_divided_into_the_costs_that_made_them():
    prompts, alone = load(10, 10, 10, 1000, 0.01, 1e-4), load(4, 100, 100, 400, 0.01, 1e-4)
    prompt = reduce.prompt_cost(prompts, alone)
    assert (prompt.step_s, prompt.row_s) == pytest.approx((0.01, 1e-4))
    point = reduce.step_point(alone, prompt)
    assert (point.running, point.seconds, point.tokens, point.rows) == pytest.approx((0.96, 0.01, 1.0, 1.0))
    gateway = reduce.cpu([prompts, alone])["gateway"]
    assert (gateway.request_s, gateway.token_s) == pytest.approx((0.002, 1e-5))
    assert reduce.computed([alone]) == 0.75


def test_prompts_cost_what_the_curve_of_the_verifiers_says_as_far_as_their_load_is_slower():
    curve = {"2": 0.010, "8": 0.010, "32": 0.034, "64": 0.098}  # free up to 8 rows, then 1 ms a row, then 2 ms
    prompts, alone = load(10, 10, 10, 320, 0.02, 0.048 / 32, curve), load(4, 404, 400, 128, 0.02, 0.048 / 32, curve)
    prompt = reduce.prompt_cost(prompts, alone)
    assert prompt.step_s == pytest.approx(0.02)
    assert [prompt.seconds(0, rows) for rows in (8, 20, 64)] == pytest.approx([0.0, 0.024, 0.176])
    assert prompt.seconds(8, 24) == pytest.approx(0.048)
    assert prompt.row_s == pytest.approx(0.048 / 32)
    assert reduce.step_point(alone, prompt).seconds == pytest.approx(0.02, rel=0.01)
