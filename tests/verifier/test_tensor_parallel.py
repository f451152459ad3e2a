"""Settings that a model in several processes does not have."""

from __future__ import annotations

from typing import Any

import pytest
from outrider.verifier.settings import VerifierSettings


@pytest.mark.parametrize(("name", "value"), [("kv_cache", "always"), ("handover", "always"), ("role", "prefill")])
def test_exchanges_of_pages_are_refused(name: str, value: str) -> None:
    given: dict[str, Any] = {name: value}
    with pytest.raises(ValueError, match=f"tensor_parallel must be 1 for {name} = {value}"):
        VerifierSettings(tensor_parallel=2, **given)
    assert VerifierSettings(tensor_parallel=2).engine().tensor_parallel == 2
