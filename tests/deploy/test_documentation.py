"""What docs/kubernetes.md says about triggers is what the chart has."""

from __future__ import annotations

import yaml

from tests.deploy.chart import CHART, FOLDER

PAGE = (FOLDER.parents[1] / "docs" / "kubernetes.md").read_text()


def test_the_table_of_triggers_is_that_of_the_chart() -> None:
    triggers = yaml.safe_load((CHART / "files" / "triggers.yaml").read_text())
    rows = {
        f"| {kind} | `{name}`: {trigger['about']} | `{trigger['query']}` | {trigger['target']} |"
        for kind, named in triggers.items()
        for name, trigger in named.items()
    }
    assert rows == {line for line in PAGE.splitlines() if "`: " in line and line.startswith("| ")}
