from __future__ import annotations

from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st
from outrider.measure.load.prompts import PromptsError, from_file, unique, windows


@given(st.text(alphabet="ab\n", max_size=200), st.integers(1, 50))
def test_windows_are_consecutive_whole_lines(text, characters):
    pieces = windows(text, characters)
    assert text.startswith("".join(pieces))
    assert all(piece.endswith("\n") for piece in pieces)
    assert all(len(piece) <= characters or piece.count("\n") == 1 for piece in pieces)


def test_prompts_that_come_round_again_share_no_prefix():
    prompts = list(islice(unique(["x = 1"], "seed"), 50))
    assert len({prompt.splitlines()[0] for prompt in prompts}) == 50
    assert prompts == list(islice(unique(["x = 1"], "seed"), 50))


def test_a_file_of_prompts_holds_strings_or_objects(tmp_path):
    path = tmp_path / "prompts.jsonl"
    path.write_text('"def f("\n\n{"prompt": "class A"}\n')
    assert from_file(path) == ["def f(", "class A"]


@pytest.mark.parametrize("content", ["", "{}\n", "[1]\n", "not json\n"])
def test_a_file_that_holds_no_prompts_is_refused(tmp_path, content):
    path = tmp_path / "prompts.jsonl"
    path.write_text(content)
    with pytest.raises(PromptsError, match=str(path)):
        from_file(path)
