"""One checkpoint of every family a session."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from outrider.models.llama import LlamaModel
from transformers import PreTrainedModel

from tests.models.checkpoints import FAMILIES, save


@dataclass(frozen=True)
class Pair:
    """transformers' model, and ours of the same directory."""

    directory: Path
    theirs: PreTrainedModel
    ours: LlamaModel


@pytest.fixture(scope="session", params=FAMILIES)
def family(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """A float32 checkpoint of each family in turn."""
    directory = tmp_path_factory.mktemp("checkpoint")
    theirs = save(request.param, directory)
    return Pair(directory, theirs, LlamaModel.load(directory))
