"""Dashboards: their JSON is that of their descriptions, and their queries name metrics that there are."""

from __future__ import annotations

import json
import re
from itertools import combinations
from pathlib import Path

import pytest

from deploy.observe.write_dashboards import FOLDER, WRITTEN, Panel, files, read

REPOSITORY = Path(__file__).parents[2]
MADE = re.compile(r"\b(?:counter|gauge|histogram|distributions)\(\s*\"(\w+)\"")
NAMED = re.compile(r"\boutrider_\w+")
PANELS = [panel for dashboard in read().values() for panel in dashboard.panels]


def metrics() -> set[str]:
    """Names of all metrics that the sources make, with those of a counter's and a histogram's series."""
    folders = [REPOSITORY / root for root in ("mesh", "gateway", "services", "kernels", "engine", "native")]
    texts = [path.read_text() for folder in folders for path in folder.rglob("*.py")]
    names = {name for text in texts for name in MADE.findall(text)}
    return {f"outrider_{name}{end}" for name in names for end in ("", "_total", "_bucket", "_sum", "_count")}


@pytest.mark.parametrize("path", sorted(files()), ids=lambda path: path.name)
def test_the_json_of_a_dashboard_is_that_of_its_description(path: Path) -> None:
    assert path.read_bytes() == files()[path], "`make dashboards` writes it"


def test_no_json_is_left_of_a_dashboard_that_is_gone() -> None:
    assert set(WRITTEN.iterdir()) == files().keys()


def test_a_panel_says_what_it_shows() -> None:
    assert PANELS
    assert not [panel.title for panel in PANELS if not (panel.title and panel.unit and panel.description.endswith("."))]


def test_queries_and_rules_name_metrics_that_there_are() -> None:
    queries = [query for panel in PANELS for query in panel.expressions.values()]
    rules = re.sub(r"^ *#.*$", "", (FOLDER / "alerts.yaml").read_text(), flags=re.MULTILINE)
    named = {name for text in [*queries, rules] for name in NAMED.findall(text)} - {"outrider_shares"}
    missing = sorted(named - metrics())
    assert named
    assert not missing


@pytest.mark.parametrize("path", sorted(files()), ids=lambda path: path.name)
def test_panels_lie_beside_each_other(path: Path) -> None:
    places = [panel["gridPos"] for panel in json.loads(path.read_bytes())["panels"]]
    assert all(place["x"] + place["w"] <= 24 for place in places)
    assert not [(one, other) for one, other in combinations(places, 2) if overlap(one, other)]


def overlap(one: dict[str, int], other: dict[str, int]) -> bool:
    across = one["x"] < other["x"] + other["w"] and other["x"] < one["x"] + one["w"]
    return across and one["y"] < other["y"] + other["h"] and other["y"] < one["y"] + one["h"]


def test_a_panel_has_queries_or_a_histogram() -> None:
    with pytest.raises(ValueError, match="either queries or a histogram"):
        Panel(title="Nothing", description="Shows nothing.")


def test_there_is_a_dashboard_for_each_part() -> None:
    assert read().keys() == {"overview", "speculation", "kv", "tenants", "failover"}
