"""The choice between compiled code and plain torch."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from outrider.kernels.backend import compiled
from outrider.kernels.kv_compact import native_move
from outrider.kernels.philox.cpu import native_variates
from outrider.kernels.race_sample.cpu import native_race

from tests.kernels.choosing import kernels


@pytest.mark.parametrize("call", [native_move, native_race, native_variates])
def test_a_compiled_call_follows_the_choice(call: Callable[[], object]) -> None:
    with kernels("torch"):
        assert call() is None
    with kernels("auto"):
        assert (call() is None) == (compiled() is None)
        assert call() is call()
