"""A toy model as an LLM."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from outrider.engine import LLM


@pytest.fixture(scope="module")
def llm(directory: Path) -> Iterator[LLM]:
    """The toy model with two cheap drafters; no test closes it."""
    with LLM(directory, drafters=["suffix", "ngram"], page_size=8) as made:
        yield made
