"""The check tells queries that answer from those that do not, by a real Prometheus."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from outrider.loadtest.observe import movement, prometheus
from outrider.loadtest.observe.answers import silent_queries, silent_rules
from outrider.loadtest.observe.dashboards import Dashboard, Panel, Row

pytestmark = pytest.mark.skipif(not shutil.which("prometheus"), reason="needs prometheus: apt-get install prometheus")


def dashboard(**queries: str) -> Dashboard:
    return Dashboard("Some", "Some.", [Row("Row", [Panel("Panel", "Shows something.", queries)])])


async def test_queries_without_numbers_and_rules_without_series_are_named(tmp_path: Path) -> None:
    shown = {"some": dashboard(one="vector(1)", nothing="outrider_nothing{model=~'$model'}", ratio="vector(0) / 0")}
    async with prometheus.running(tmp_path, {}) as server:
        assert await silent_queries(server, shown) == ["some: Panel: nothing", "some: Panel: ratio"]
        silent = await silent_rules(server)
        assert 'OutriderNoVerifierReady: outrider_ready{job="verifier"}' in silent
        assert {line.split(": ")[0] for line in silent} == (await server.rules()).keys()


async def test_metrics_of_processes_that_nobody_scrapes_are_not_shown(tmp_path: Path) -> None:
    async with prometheus.running(tmp_path, {}) as server:
        unseen, still = await movement.of_all(server)
    assert {"outrider_gateway_streams", "outrider_verifier_steps_total", "outrider_build_info"} <= set(unseen)
    assert still == []


async def test_a_query_that_prometheus_refuses_is_an_error(tmp_path: Path) -> None:
    async with prometheus.running(tmp_path, {}) as server:
        with pytest.raises(ValueError, match="parse error"):
            await server.series("sum(")
