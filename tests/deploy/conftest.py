"""Tests of the chart need helm."""

from __future__ import annotations

import pytest

from tests.deploy.chart import HELM


@pytest.fixture(autouse=True)
def _helm() -> None:
    if HELM is None:
        pytest.skip("needs the command helm, from https://helm.sh/docs/intro/install")
