"""Patterns are hidden however an answer is cut into tokens, and nothing else is held back for long."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from outrider.gateway.filters.filter import MakeFilter, Passed
from outrider.gateway.filters.lookahead import Matcher
from outrider.gateway.filters.patterns import patterns
from outrider.mesh.errors import ConfigError

from tests.gateway.filters.reading import chain, passed_by

MAIL = "Mail bob.smith@example.org, or a@b.co"
KEY = "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,AB12\n\nabc\n"
LISTED = """
[[pattern]]
name = "codename"
words = ["Blue Bird", "über"]
action = "end"

[[pattern]]
name = "ticket"
expressions = ['TICKET-[0-9]{4,8}\\b', '(?i)case (?:[ab]|c+)!']
mask = "***"
"""
ATOMS = st.sampled_from(["a", "b", "c", ".", "[ab]", "(?:ab|c)", "(a|bc)", r"\bc"])
EXPRESSIONS = st.lists(st.tuples(ATOMS, st.sampled_from(["", "?", "*", "+", "{2}", "{1,3}"])), min_size=1, max_size=4)
LONGEST = 16


def listed(directory: Path, text: str = LISTED, **more: Any) -> MakeFilter:
    path = directory / "listed.toml"
    path.write_text(text)
    return patterns({"secrets": "pass", "emails": "pass", "file": str(path)} | more)


@pytest.mark.parametrize(
    "secret",
    [
        "AKIAABCDEFGHIJKLMNOP",
        "ghp_" + "a1B2" * 9,
        "sk-proj-" + "a1B2" * 9,
        "xoxb-123456789012-abc",
        "AIza" + "a1_-b" * 7,
        "hf_" + "aB" * 17,
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N",
        KEY + "-----END RSA PRIVATE KEY-----",
        KEY,
    ],
)
async def test_secrets_and_addresses_are_masked_wherever_the_text_is_cut(secret: str) -> None:
    make, text = patterns({}), f"{MAIL}: {secret}"
    wanted = Passed("Mail [email], or [email]: [secret]", ("f0.email", "f0.email", "f0.secret"))
    for size in (1, 2, 3, 7, len(text)):
        assert await passed_by(chain(make), [text[at : at + size] for at in range(0, len(text), size)]) == wanted


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("See TICKET-12345, Case CCC! TICKET-123", Passed("See ***, *** TICKET-123", ("f0.ticket", "f0.ticket"))),
        ("Of blue  bird and bluebird", Passed("Of blue  bird and bluebird")),
        ("Of blue BIRD and TICKET-1234", Passed("Of ", ended="f0.codename")),
        ("TICKET-1234 ist Über.", Passed("*** ist ", ("f0.ticket",), "f0.codename")),
    ],
)
async def test_listed_words_end_an_answer_and_listed_expressions_are_masked(
    tmp_path: Path, text: str, wanted: Passed
) -> None:
    make = listed(tmp_path)
    assert await passed_by(chain(make), [*text]) == await passed_by(chain(make), [text]) == wanted


async def test_text_that_begins_no_match_is_not_held() -> None:
    reading = chain(patterns({"emails": "pass"}))
    for piece in ("The quick ", "brown fox ", "jumps ", "over, "):
        assert (await reading.feed(piece)).text == piece


async def test_a_possible_match_that_grows_too_long_is_hidden_in_parts(tmp_path: Path) -> None:
    make = listed(tmp_path, '[[pattern]]\nname = "tag"\nexpressions = ["<[^>]*>"]', longest=LONGEST)
    text = "a<" + "x" * LONGEST + "y> b"
    for pieces in ([*text], [text], [text[:9], text[9:]]):
        assert await passed_by(chain(make), pieces) == Passed("a[tag]xy> b", ("f0.tag",))


@given(EXPRESSIONS, st.text("abc ", max_size=14), st.sets(st.integers(1, 13)))
async def test_cuts_change_nothing(parts: list[tuple[str, str]], text: str, cuts: set[int]) -> None:
    expression = "".join(atom + count for atom, count in parts)
    try:
        matcher = Matcher([expression, "b(?:ca){2}"], LONGEST * 10)
    except ValueError:  # an expression that matches the empty text
        return
    start, found, end = 0, [], 0
    for stop in [*sorted(cuts), len(text)]:
        more, start = matcher.decide(text[:stop], start, final=stop == len(text))
        found += more
    assert (found, start) == matcher.decide(text, end, final=True)


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ('[[pattern]]\nname = "a"\nexpressions = ["^a"]', "has '^': an expression may have no ^"),
        ('[[pattern]]\nname = "a"\nexpressions = ["a(?=b)"]', "has '(?': an expression may have no ^"),
        ('[[pattern]]\nname = "a"\nexpressions = ["a(b"]', "RE2 refuses the expression: missing )"),
        ('[[pattern]]\nname = "a"\nexpressions = ["(a)\\\\1"]', "RE2 refuses the expression: invalid escape sequence"),
        ('[[pattern]]\nname = "a"\nexpressions = ["a*"]', "the expression 'a*' matches the empty text"),
        ('[[pattern]]\nname = "a"', "a has neither words nor expressions"),
        ('[[pattern]]\nname = "a"\nwards = ["b"]', "unknown field `wards`"),
        ("[[pattern", "listed.toml"),
    ],
)
def test_what_cannot_be_looked_for_is_refused_at_the_start(tmp_path: Path, file: str, message: str) -> None:
    with pytest.raises(ConfigError, match="filter_options") as caught:
        listed(tmp_path, file)
    assert message in str(caught.value)


def test_a_filter_with_nothing_to_look_for_is_refused() -> None:
    with pytest.raises(ConfigError, match="there is nothing to look for"):
        patterns({"secrets": "pass", "emails": "pass"})
