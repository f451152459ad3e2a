"""Choosing who computes, as an operator does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from outrider.kernels.backend import choice


@contextmanager
def kernels(name: str) -> Iterator[None]:
    """Models that are loaded meanwhile run as ``OUTRIDER_KERNELS`` = ``name`` has it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OUTRIDER_KERNELS", name)
        choice.cache_clear()
        try:
            yield
        finally:
            choice.cache_clear()
