"""An engine over a toy target of real architecture."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engine.engines import MakeEngine, engine_maker


@pytest.fixture
def make_engine(tmp_path: Path) -> MakeEngine:
    """Builds engines over one toy target."""
    return engine_maker(tmp_path)
