"""Incremental decoding, against decoding everything at once."""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from outrider.engine.text import IncrementalDecoder, Tokenizer

from tests.engine.text.makers import KINDS, byte_fallback, byte_level, tokenizer

_named = cache(lambda kind: tokenizer(KINDS[kind]()))


def _stream(chosen: Tokenizer, ids: list[int], keep_special: bool = False) -> list[str]:
    decoder = IncrementalDecoder(chosen, keep_special)
    return [*(decoder.push(token) for token in ids), decoder.flush()]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("keep_special", [False, True])
@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_pieces_of_any_token_sequence_join_to_its_text(kind: str, keep_special: bool, data: st.DataObject) -> None:
    chosen = _named(kind)
    known = sorted(n for n in range(chosen.vocabulary_size))
    ids = data.draw(st.lists(st.sampled_from(known), max_size=24))
    assert "".join(_stream(chosen, ids, keep_special)) == chosen.decode(ids, keep_special=keep_special)


@settings(max_examples=150, deadline=None)
@given(text=st.text(max_size=40))
def test_text_that_was_encoded_comes_back_without_half_characters(text: str) -> None:
    chosen = _named("byte_level")
    *pieces, rest = _stream(chosen, chosen.encode(text))
    assert "".join(pieces) == text
    assert rest == ""
    assert "�" in text or not any("�" in piece for piece in pieces)


def test_a_character_comes_out_with_its_last_byte() -> None:
    chosen = tokenizer(byte_level(vocabulary_size=262))
    ids = chosen.encode("👩é")
    assert len(ids) == 6
    assert _stream(chosen, ids) == ["", "", "", "👩", "", "é", ""]


def test_bytes_that_never_become_a_character_come_out_as_replacement_on_flush() -> None:
    chosen = tokenizer(byte_level(vocabulary_size=262))
    assert _stream(chosen, chosen.encode("a👩")[:3]) == ["a", "", "", "�"]


def test_a_run_of_fallback_bytes_waits_until_its_end_decides_what_it_is() -> None:
    chosen = tokenizer(byte_fallback())
    *_, first, second, third = chosen.encode("你")
    letter = chosen.encode("e")[-1]
    assert _stream(chosen, [letter, first, second, third, letter]) == ["e", "", "", "", "你e", ""]
    assert _stream(chosen, [letter, first, second, letter]) == ["e", "", "", "��e", ""]
    assert _stream(chosen, [letter, first, second, third, first]) == ["e", "", "", "", "", "����"]


def test_leading_spaces_survive_a_special_token_in_between() -> None:
    chosen = tokenizer(byte_fallback())
    ids = chosen.encode("def parse")
    with_special = [*ids[:1], chosen.special_tokens["<s>"], *ids[1:]]
    assert "".join(_stream(chosen, with_special)) == "def parse"


@pytest.mark.parametrize("kind", KINDS)
def test_an_id_without_a_token_has_no_text(kind: str) -> None:
    chosen = _named(kind)
    assert _stream(chosen, [chosen.vocabulary_size, -1, 2**31 - 1]) == [""] * 4
