"""The code of `docs/library.md` runs as it stands there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).parents[3] / "docs" / "library.md"


def test_the_page_runs_from_top_to_bottom(capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"(?:^(?:    .*)?\n)+", PAGE.read_text(), re.MULTILINE)
    code = [re.sub(r"^    ", "", block, flags=re.MULTILINE) for block in blocks if "    " in block]
    names: dict[str, Any] = {}
    for block in code:
        if not block.strip().startswith("pip "):
            exec(block, names)
    assert names["answer"].finish_reason == "length"
    assert names["answer"].guesses
    assert len(code) == 6
    assert capsys.readouterr().out
    names["llm"].close()
