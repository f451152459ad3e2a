from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hub import Hub, Repository, running_hub
from tests.toy_model import save_toy


@pytest.fixture(scope="session")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A toy model's directory."""
    return save_toy(tmp_path_factory.mktemp("toys") / "tiny", 64)


@pytest.fixture
def hub(toy: Path) -> Iterator[Hub]:
    """A Hub with the toy model as org/tiny, beside files that no model needs."""
    with running_hub() as hub:
        repository = Repository.of(toy)
        repository.files |= {"README.md": b"#", "pytorch_model.bin": b"pickle", "onnx/model.onnx": b"x"}
        hub.repositories["org/tiny"] = repository
        yield hub
