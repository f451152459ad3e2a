"""The shape that the formats of calls have in common."""

from __future__ import annotations

from typing import Literal

import msgspec

NAME, ID = "$NAME", "$ID"
"""In a head: the function's name. In any text of a format: letters, digits, `_` and `-` that mean nothing here."""


class Tags(msgspec.Struct, frozen=True):
    """Arguments one by one: ``opening``, a name, ``middle``, a value, ``closing``.

    A value that may only be a string is written as it is, others as JSON. With a ``json_middle``, that stands in front
    of JSON, and ``middle`` in front of strings.
    """

    opening: str
    middle: str
    closing: str
    json_middle: str = ""


class CallFormat(msgspec.Struct, frozen=True, kw_only=True):
    """The text of calls: ``head``, arguments, ``tail``, then for each further call ``later``, arguments, ``tail``.

    Where there are several texts, each is possible. A head holds `NAME`; each text may hold `ID`.

    Attributes:
        signs: texts that are all in chat templates of this format.
        gap: blanks that may stand in front of the first call where no text does.
        end: what follows the last call.
        trigger: what no text outside calls holds, since a call follows it; "" for that part of a head that ends with
            the name of a function and a bracket.
        arguments: ``json``, or ``python`` for keyword arguments, or their tags.
        anywhere: whether text may stand before the first call; else an answer is text or calls.
        most: most calls of one answer.
        marks: parts of the text for which a vocabulary may have special tokens.
        turns: texts by which a model begins a text, of which the last one is for the answer; no content.
        between_turns: what ends a text, and what begins the next one after it; no content.
    """

    signs: tuple[str, ...]
    head: tuple[str, ...]
    later: tuple[str, ...] = ()
    tail: tuple[str, ...] = ()
    gap: str = ""
    end: str = ""
    trigger: str
    arguments: Literal["json", "python"] | Tags = "json"
    anywhere: bool = True
    most: int = 16
    marks: tuple[str, ...] = ()
    turns: tuple[str, ...] = ()
    between_turns: tuple[str, ...] = ()
