"""Chooses the implementation of kernels, as an operator does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from outrider.kernels.backend import choice


@contextmanager
def kernels(name: str) -> Iterator[None]:
    """A context in which models are loaded with ``OUTRIDER_KERNELS`` = ``name``."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OUTRIDER_KERNELS", name)
        choice.cache_clear()
        try:
            yield
        finally:
            choice.cache_clear()
