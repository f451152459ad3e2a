"""The filter ``patterns``: masks secrets, e-mail addresses and listed words and expressions, or ends the answer."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta
from outrider.gateway.filters.filter import MakeFilter, Passed
from outrider.gateway.filters.installed import read_options
from outrider.gateway.filters.lookahead import Matcher
from outrider.gateway.filters.secret_shapes import EMAIL, SECRETS
from outrider.mesh.errors import ConfigError

Action = Literal["mask", "end"]

_WORD = re.compile(r"\w", re.ASCII)


class PatternOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Options of the filter. ``file`` is a TOML file of `ListedPattern`; ``longest`` is in characters."""

    secrets: Action | Literal["pass"] = "mask"
    emails: Action | Literal["pass"] = "mask"
    file: str = ""
    longest: Annotated[int, Meta(ge=16, le=65536)] = 4096


class ListedPattern(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An entry ``[[pattern]]`` of the file: whole ``words``, in any case, and regular ``expressions``."""

    name: Annotated[str, Meta(pattern="^[A-Za-z0-9_-]{1,64}$")]
    words: list[Annotated[str, Meta(min_length=1)]] = []
    expressions: list[str] = []
    action: Action = "mask"
    mask: str | None = None


class _PatternFile(msgspec.Struct, forbid_unknown_fields=True):
    pattern: list[ListedPattern]


def patterns(options: Mapping[str, Any]) -> MakeFilter:
    """The plug-in; raises `ConfigError` for options, a file or an expression that it cannot take."""
    own = read_options("patterns", options, PatternOptions)
    listed = [
        ListedPattern("secret", expressions=[*SECRETS], action=own.secrets) if own.secrets != "pass" else None,
        ListedPattern("email", expressions=[EMAIL], action=own.emails) if own.emails != "pass" else None,
        *(_read(Path(own.file)) if own.file else ()),
    ]
    pairs = [(each, expression) for each in listed if each is not None for expression in _expressions(each)]
    if not pairs:
        raise ConfigError("filter_options of patterns: there is nothing to look for")
    try:
        matcher = Matcher([expression for _, expression in pairs], own.longest)
    except ValueError as error:
        raise ConfigError(f"filter_options of patterns: {error}") from None
    owners = [each for each, _ in pairs]
    return lambda: PatternFilter(matcher, owners, own.longest)


class PatternFilter:
    """Reads one answer; ``owners`` has the entry of each of the matcher's expressions.

    At most ``longest`` characters are held.
    """

    def __init__(self, matcher: Matcher, owners: list[ListedPattern], longest: int) -> None:
        self._matcher, self._owners, self._longest = matcher, owners, longest
        self._before = self.held = ""

    def feed(self, text: str) -> Passed:
        """Passes what is decided; holds back what may become a match.

        Where ``longest`` may be reached, characters count one by one: the result depends on no cut.
        """
        all_passed = Passed()
        for piece in text if len(self.held) + len(text) > self._longest else [text]:
            self.held += piece
            passed = self._decide(final=False)
            all_passed = Passed(all_passed.text + passed.text, all_passed.changes + passed.changes, passed.ended)
            if passed.ended:
                break
        return all_passed

    def end(self) -> Passed:
        """Passes or masks all that is held."""
        return self._decide(final=True)

    def _decide(self, *, final: bool) -> Passed:
        text, start = self._before + self.held, len(self._before)
        found, end = self._matcher.decide(text, start, final=final)
        parts: list[str] = []
        changes: list[str] = []
        for match in found:
            owner = self._owners[match.which]
            parts.append(text[start : match.start])
            if owner.action == "end":
                return Passed("".join(parts), tuple(changes), owner.name)
            parts.append(f"[{owner.name}]" if owner.mask is None else owner.mask)
            changes.append(owner.name)
            start = match.end
        parts.append(text[start:end])
        self._before, self.held = text[max(end - 1, 0) : end], text[end:]
        return Passed("".join(parts), tuple(changes))


def _read(path: Path) -> list[ListedPattern]:
    try:
        return msgspec.convert(tomllib.loads(path.read_text()), _PatternFile).pattern
    except (OSError, ValueError) as error:
        raise ConfigError(f"filter_options of patterns: file {path}: {error}") from None


def _expressions(pattern: ListedPattern) -> list[str]:
    if not pattern.words and not pattern.expressions:
        raise ConfigError(f"filter_options of patterns: {pattern.name} has neither words nor expressions")
    return [*map(_word, pattern.words), *pattern.expressions]


def _word(word: str) -> str:
    r"""An expression for a whole word in any case; RE2's ``\b`` knows ASCII only."""
    begin, end = (r"\b" if _WORD.match(letter) else "" for letter in (word[0], word[-1]))
    return f"(?i:{begin}{re.escape(word)}{end})"
