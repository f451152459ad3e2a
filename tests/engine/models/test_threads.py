"""The CPU threads of a process's models."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from outrider.engine.models.threads import use_threads

from tests.machines import machine

QUOTA = {"cpu.max": "250000 100000"}


@pytest.mark.parametrize(("count", "given", "threads"), [(0, None, 2), (5, None, 5), (0, "3", 4), (6, "3", 6)])
def test_models_have_one_thread_for_each_core_of_the_share_unless_a_number_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int, given: str | None, threads: int
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if given:
        monkeypatch.setenv("OMP_NUM_THREADS", given)
    before = torch.get_num_threads()
    torch.set_num_threads(4)  # as torch has read the variable, or counted cores, when it was imported
    try:
        assert use_threads(count, machine(tmp_path, QUOTA)) == threads
    finally:
        torch.set_num_threads(before)


def test_ranks_of_a_model_share_the_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    before, root = torch.get_num_threads(), machine(tmp_path, QUOTA)
    torch.set_num_threads(4)
    try:
        assert [use_threads(count, root, ranks=2) for count in (5, 1, 0)] == [2, 1, 1]
    finally:
        torch.set_num_threads(before)
