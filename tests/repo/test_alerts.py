"""Alerts: promtool tries their rules, each has a test there, and each has a runbook."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from deploy.observe.write_dashboards import FOLDER

REPOSITORY = Path(__file__).parents[2]
RULES = [rule for group in yaml.safe_load((FOLDER / "alerts.yaml").read_text())["groups"] for rule in group["rules"]]
ALERTS = {rule["alert"]: rule for rule in RULES if "alert" in rule}
with_promtool = pytest.mark.skipif(not shutil.which("promtool"), reason="needs promtool: apt-get install prometheus")


def promtool(*arguments: str) -> None:
    done = subprocess.run(["promtool", *arguments], cwd=FOLDER, capture_output=True, text=True, check=False)
    assert not done.returncode, done.stdout + done.stderr


@with_promtool
def test_alerts_fire_on_what_they_are_about() -> None:
    promtool("test", "rules", "alerts_test.yaml")


@with_promtool
def test_prometheus_takes_the_configuration() -> None:
    promtool("check", "config", "prometheus.yaml")


def test_every_alert_has_a_case_in_which_it_fires_and_one_in_which_it_does_not() -> None:
    tests = yaml.safe_load((FOLDER / "alerts_test.yaml").read_text())["tests"]
    cases = [case for test in tests for case in test["alert_rule_test"]]
    assert {case["alertname"] for case in cases if case["exp_alerts"]} == ALERTS.keys()
    assert {case["alertname"] for case in cases if not case["exp_alerts"]} >= ALERTS.keys() - {"OutriderSloBurnsSlowly"}


def test_every_alert_has_its_section_among_the_runbooks_and_every_section_an_alert() -> None:
    page = REPOSITORY / "docs" / "runbooks" / "README.md"
    sections = set(re.findall(r"^## (Outrider\w+)$", page.read_text(), re.MULTILINE))
    assert sections == ALERTS.keys()
    for name, rule in ALERTS.items():
        assert rule["annotations"]["runbook"] == f"docs/runbooks/README.md#{name.lower()}"
        assert rule["labels"]["severity"] in ("critical", "warning", "info")


def test_prometheus_asks_for_all_services_of_compose_that_have_metrics() -> None:
    services: set[str] = set(yaml.safe_load((REPOSITORY / "compose.yaml").read_text())["services"])
    (job,) = yaml.safe_load((FOLDER / "prometheus.yaml").read_text())["scrape_configs"]
    (named,) = job["dns_sd_configs"]
    assert set(named["names"]) == services - {"nats", "credentials", "admin", "prometheus", "grafana"}
    assert named["port"] == 9090
