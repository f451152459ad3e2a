"""Tokens that stand beside ``tokenizer.json``, in the files that transformers reads too."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from outrider.engine.text.errors import TextError
from outrider.engine.text.files import read_json, special_names

if TYPE_CHECKING:
    import tokenizers

_FLAGS = ("single_word", "lstrip", "rstrip", "special")
_DECODER = "added_tokens_decoder"
_EXTRA = ("additional_special_tokens", "extra_special_tokens")


class Declared(NamedTuple):
    """Tokens beside ``tokenizer.json``.

    Attributes:
        tokens: by id, as ``added_tokens`` of ``tokenizer.json`` has them.
        with_flags: whether their flags also count for tokens that ``tokenizer.json`` has.
    """

    tokens: dict[int, dict[str, Any]]
    with_flags: bool = True


def declared_tokens(directory: Path, tokenizer_config: Mapping[str, Any]) -> Declared:
    """The tokens in ``added_tokens_decoder`` of ``tokenizer_config.json``, else those in ``added_tokens.json``.

    `TextError` if one has another form than there is in such files.
    """
    where, decoder = f"{directory / 'tokenizer_config.json'}: added_tokens_decoder", tokenizer_config.get(_DECODER)
    if decoder is None:
        return _older_tokens(directory / "added_tokens.json", tokenizer_config)
    if not isinstance(decoder, dict):
        raise TextError(f"{where} must be an object with a token for each id")
    return Declared(dict(sorted(_token(number, token, where) for number, token in decoder.items())))


def _older_tokens(path: Path, tokenizer_config: Mapping[str, Any]) -> Declared:
    special = {*special_texts(tokenizer_config), *special_names(tokenizer_config).values()}
    listed = ((number, {"content": text, "special": text in special}) for text, number in read_json(path).items())
    return Declared(dict(sorted(_token(number, token, str(path)) for number, token in listed)), with_flags=False)


def special_texts(tokenizer_config: Mapping[str, Any]) -> list[str]:
    """The special tokens that ``tokenizer_config.json`` lists without a role and without an id."""
    listed = [tokenizer_config.get(name) or [] for name in _EXTRA]
    tokens = [token for each in listed for token in (each.values() if isinstance(each, dict) else each)]
    return [content for content in map(_content, tokens) if content]


def completed(definition: bytes, loaded: tokenizers.Tokenizer, declared: Declared) -> bytes | None:
    """``definition``, a ``tokenizer.json``, with the ``declared`` tokens that ``loaded``, made of it, lacks.

    A token whose id or text belongs to another one is left out. None if nothing is lacking.
    """
    known = loaded.get_added_tokens_decoder()
    lacking = {
        number: token
        for number, token in declared.tokens.items()
        if number not in known or (declared.with_flags and not _is_same(token, known[number]))
    }
    if not lacking:
        return None
    document = json.loads(definition)
    vocabulary = document["model"]["vocab"]
    ids = loaded.get_vocab(with_added_tokens=True)
    texts = {number: text for text, number in ids.items()}
    added = {entry["id"]: entry for entry in document.get("added_tokens") or []}
    for number, token in lacking.items():
        content = token["content"]
        if ids.get(content, number) != number or texts.get(number, content) != content:
            continue
        if number not in texts and number != len(texts) and isinstance(vocabulary, dict):
            vocabulary[content] = number  # else the library gives the token the next id
        texts[number], ids[content] = content, number
        added[number] = {"id": number, **token}
    whole = {**document, "added_tokens": [added[number] for number in sorted(added)]}
    return json.dumps(whole, ensure_ascii=False).encode()


def _is_same(token: Mapping[str, Any], known: tokenizers.AddedToken) -> bool:
    return all(getattr(known, name) == value for name, value in token.items())


def _token(number: Any, token: Any, where: str) -> tuple[int, dict[str, Any]]:
    if not isinstance(token, Mapping) or _content(token) is None or not str(number).isdecimal():
        raise TextError(f"{where} must have an object with a content for each id")
    flags = {name: bool(token.get(name, False)) for name in _FLAGS}
    normalized = bool(token.get("normalized", not flags["special"]))
    return int(number), {"content": token["content"], **flags, "normalized": normalized}


def _content(token: Any) -> str | None:
    content = token.get("content") if isinstance(token, Mapping) else token
    return content if isinstance(content, str) else None
