"""One checkpoint of every family a session."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from outrider.engine.models.llama import LlamaModel
from outrider.kernels.launch import INTERPRETED

from tests.engine.models.checkpoints import FAMILIES, Pair, save
from tests.interpreting import change_the_language_once, multiply_in_one_order


@pytest.fixture(scope="session", params=FAMILIES)
def family(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """A float32 checkpoint of each family in turn."""
    directory = tmp_path_factory.mktemp("checkpoint")
    theirs = save(request.param, directory)
    return Pair(directory, theirs, LlamaModel.load(directory))


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    """Torch on one thread: the models are so small that more only wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session", autouse=True)
def interpreter() -> None:
    if INTERPRETED:
        change_the_language_once()
        multiply_in_one_order()
