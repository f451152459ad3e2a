"""Thoughts are told from answers by their marks, wherever tokens end."""

from __future__ import annotations

import random

import pytest
import tokenizers
from outrider.engine.requests.parameters import Mark, Thought
from outrider.engine.text import IncrementalDecoder, Tokenizer
from outrider.engine.text.errors import TextError
from outrider.engine.thoughts.marks import STYLES, marks_of
from outrider.engine.thoughts.reader import ThoughtReader
from outrider.engine.thoughts.tracker import Tracker
from tokenizers import AddedToken, models

from tests.engine.text.makers import CHATML, byte_level, tokenizer

HARMONY = ("<|channel|>", "<|message|>", "<|start|>", "<|end|>")
SHAPES = [("think", ("</think>",)), ("mistral", ("[THINK]", "[/THINK]")), ("harmony", HARMONY), ("granite", ())]


def made(style: str, added: tuple[str, ...] = (), *, special: bool = False) -> Tokenizer:
    """A tokenizer with ``added`` tokens, and a template with the marks of ``style``."""
    vocabulary = byte_level()
    marks = [AddedToken(text, special=special) for text in added]
    vocabulary.add_special_tokens(marks) if special else vocabulary.add_tokens(marks)
    return tokenizer(vocabulary, template=CHATML + "".join(STYLES[style]))


def cut(text: str, ours: Tokenizer, dice: random.Random | None) -> list[int]:
    """Ids of ``text``: the tokenizer's, or those of pieces that ``dice`` cut, but for marks with added tokens."""
    if dice is None:
        return ours.encode(text, parse_special=True, add_special=False)
    ids: list[int] = []
    names = [*STYLES["harmony"], "<think>", "</think>", "[THINK]", "[/THINK]"]
    whole = [name for name in names if ours.has_added(ours.encode(name, parse_special=True))]
    while text:
        size = next((len(name) for name in whole if text.startswith(name)), 0)
        size = size or min([dice.randint(1, 6), *(at for name in whole if (at := text.find(name)) > 0)])
        ids += ours.encode(text[:size], parse_special=True, add_special=False)
        text = text[size:]
    return ids


def read(ours: Tokenizer, marks: Thought, prompt: str, ids: list[int]) -> tuple[str, str, int]:
    """The thought, the answer behind it, and the number of the thought's tokens."""
    tracker = Tracker(marks, ours.single_token_bytes, ours.vocabulary_size)
    reader = ThoughtReader(tracker, cut(prompt, ours, None), trims=True)
    decoder, told = IncrementalDecoder(ours), {True: "", False: ""}
    for token in ids:
        text, thought = reader.take(token, decoder.push(token))
        told[thought] += text
    text, thought = reader.end(decoder.flush())
    told[thought] += text
    return told[True], told[False], reader.tokens


@pytest.mark.parametrize("special", [False, True])
@pytest.mark.parametrize(("style", "added"), SHAPES)
def test_a_thought_ends_at_its_mark_however_tokens_are_cut(style: str, added: tuple[str, ...], special: bool) -> None:
    ours = made(style, added, special=special)
    marks = marks_of(ours)
    assert marks is not None
    start, end, plain = STYLES[style]
    for seed in range(40):
        dice = random.Random(seed) if seed else None
        told = read(ours, marks, "a", cut(f"{start}\nIs it < 7?\n\nNo…\n{end}\n\nIt is 8 <.", ours, dice))
        assert told[:2] == ("Is it < 7?\n\nNo…", "It is 8 <.")
        assert read(ours, marks, f"a{start}\n", cut(f"Hm {end}Yes", ours, dice))[:2] == ("Hm", "Yes")
        assert read(ours, marks, f"a{start}\n\n{end}\n\n", cut("Yes", ours, dice)) == ("", "Yes", 0)
        assert read(ours, marks, "a", cut(f"{plain}Yes, {'' if plain else start[:3]}", ours, dice))[0] == ""
        assert read(ours, marks, f"a{start}", cut("Cut sho\n", ours, dice))[:2] == ("Cut sho", "")


def test_an_answer_without_marks_is_whole_and_keeps_what_looked_like_one() -> None:
    ours = made("granite")
    marks = marks_of(ours)
    assert marks is not None
    for said in ("Here is my th", "Here is my thing", " \n Here", "x", ""):
        assert read(ours, marks, "a", cut(said, ours, random.Random(1))) == ("", said, 0)


def test_a_mark_that_is_a_token_is_not_spelled_by_others() -> None:
    ours = made("think", ("</think>",))
    marks = marks_of(ours)
    assert marks is not None
    spelled = [token for part in ("</", "think", ">") for token in ours.encode(part, add_special=False)]
    end = cut("</think>", ours, None)
    told = read(ours, marks, "a<think>", [*spelled, *end, *cut("so", ours, None)])
    assert told == ("</think>", "so", len(spelled) + len(end))


@pytest.mark.parametrize(
    ("template", "added", "found"),
    [
        ("{{ x }}", HARMONY, None),
        ("<think>", (), "think"),
        ("{{ content.split('</think>')[-1] }}", (), "think"),
        ("[THINK]", (), "mistral"),
        ("<|channel|>analysis", HARMONY, "harmony"),
        ("Here is my thought process:", (), "granite"),
        ("to be precise, analysis of the weather", (), None),
    ],
)
def test_the_template_says_how_a_model_marks_its_thoughts(
    template: str, added: tuple[str, ...], found: str | None
) -> None:
    vocabulary = byte_level()
    vocabulary.add_special_tokens(list(added))
    marks = marks_of(tokenizer(vocabulary, template=template))
    assert (marks is None) is (found is None)
    if marks is not None and found is not None:
        named = marks_of(tokenizer(vocabulary, template="{{ x }}"), found)
        assert marks == named


def test_a_vocabulary_that_cannot_write_the_marks_has_none() -> None:
    words = tokenizers.Tokenizer(models.BPE({"a": 0}, []))
    assert marks_of(tokenizer(words, template="<think>")) is None
    with pytest.raises(TextError, match="has no tokens in this vocabulary"):
        marks_of(tokenizer(words), "think")


def test_the_marks_may_be_named_given_or_off() -> None:
    ours = made("think")
    assert marks_of(ours, "off") is None
    given = marks_of(ours, "off", "<<", ">>")
    assert given is not None
    assert (given.start, given.end.text) == (Mark(tuple(cut("<<", ours, None)), "<<"), ">>")
    with pytest.raises(TextError, match="two"):
        marks_of(ours, "auto", "<<")
