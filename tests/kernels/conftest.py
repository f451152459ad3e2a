"""Kernels are tested on one thread, except where a test says otherwise."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from outrider.kernels.launch import INTERPRETED

from tests.interpreting import change_the_language_once, multiply_in_one_order


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    """Torch on one thread: the models are so small that more only wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session", autouse=True)
def interpreter() -> None:
    """Assertions inside kernels are checked; integers may wrap, as those of the dice do."""
    if INTERPRETED:
        from triton.runtime.interpreter import interpreter_builder as builder

        builder.options = replace(builder.options, debug=True, sanitize_overflow=False)
        change_the_language_once()
        multiply_in_one_order()
