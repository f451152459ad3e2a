"""The sampling that a model's files say it is to be used with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from outrider.engine.text.errors import TextError
from outrider.engine.text.files import default_sampling


@pytest.mark.parametrize(
    ("stated", "read"),
    [
        ({"temperature": 0.1, "top_p": 0.8, "repetition_penalty": 1.1}, None),
        ({"temperature": 0, "top_k": 20, "min_p": 0.05}, None),
        ({"temperature": 1.0, "top_p": 1, "top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0}, {}),
        ({"temperature": -1, "top_p": 0, "top_k": 1.5, "min_p": 2, "repetition_penalty": 0}, {}),
        ({"temperature": None, "top_p": "0.5", "top_k": True, "do_sample": False, "max_new_tokens": 9}, {}),
        ({"top_k": 50.0}, {"top_k": 50}),
    ],
)
def test_a_file_is_read_within_the_bounds_of_requests(
    tmp_path: Path, stated: dict[str, Any], read: dict[str, Any] | None
) -> None:
    (tmp_path / "generation_config.json").write_text(json.dumps(stated))
    found = default_sampling(tmp_path)
    assert found == (stated if read is None else read)
    assert all(isinstance(value, int) for name, value in found.items() if name == "top_k")


def test_a_model_without_the_file_says_nothing_and_a_broken_one_is_named(tmp_path: Path) -> None:
    assert default_sampling(tmp_path) == {}
    (tmp_path / "generation_config.json").write_text("[")
    with pytest.raises(TextError, match="generation_config"):
        default_sampling(tmp_path)
