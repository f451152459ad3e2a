"""Decodes tokens to text one at a time."""

from __future__ import annotations

import codecs
from typing import Protocol

from outrider.engine.text.tokenizer import Tokenizer


class IncrementalDecoder:
    """Decodes ids as they arrive; each returned piece of text is final.

    The texts from `push` and the final `flush`, joined, equal ``tokenizer.decode`` of all ids: an incomplete character
    waits for its other bytes, and invalid bytes become U+FFFD. An id without a token (models pad their vocabulary) has
    no text.
    """

    def __init__(self, tokenizer: Tokenizer, keep_special: bool = False) -> None:
        self._texts: _Texts
        if tokenizer.byte_level:
            self._texts = _Bytes(tokenizer, keep_special)
        else:
            self._texts = _Window(tokenizer, keep_special)
        self.push = self._texts.push
        self.flush = self._texts.flush


class _Texts(Protocol):
    def push(self, token: int) -> str:
        """The text that ``token`` makes final, often empty."""

    def flush(self) -> str:
        """The text that still waits; the decoder may not be used afterwards."""


class _Bytes:
    """Byte-level tokenizers: a text is the bytes of its tokens, decoded as UTF-8.

    Most tokens are ASCII; without a waiting incomplete character, they need no decoder.
    """

    def __init__(self, tokenizer: Tokenizer, keep_special: bool) -> None:
        self._bytes = tokenizer.token_bytes(keep_special)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._waits = False

    def push(self, token: int) -> str:
        if not 0 <= token < len(self._bytes):
            return ""
        data = self._bytes[token]
        if not self._waits and data.isascii():
            return data.decode("ascii")
        text = self._decoder.decode(data)
        self._waits = bool(self._decoder.getstate()[0])
        return text

    def flush(self) -> str:
        return self._decoder.decode(b"", True)


class _Window:
    """Other tokenizers: decodes the last finished token and all later tokens.

    The finished token stays, because leading spaces depend on the neighbour. A run of byte tokens waits for its end,
    because one bad byte turns the whole run into U+FFFD.
    """

    def __init__(self, tokenizer: Tokenizer, keep_special: bool) -> None:
        self._tokenizer = tokenizer
        self._silent = tokenizer.silent_ids(keep_special)
        self._byte_ids = tokenizer.byte_ids
        self._anchor: list[int] = []
        self._anchor_text = ""
        self._waiting: list[int] = []

    def push(self, token: int) -> str:
        if token in self._silent or not 0 <= token < self._tokenizer.vocabulary_size:
            return ""
        self._waiting.append(token)
        return "" if token in self._byte_ids else self.flush()

    def flush(self) -> str:
        if not self._waiting:
            return ""
        text = self._tokenizer.decode_known([*self._anchor, *self._waiting])
        final = text[len(self._anchor_text) :]
        self._anchor, self._waiting = self._waiting[-1:], []
        self._anchor_text = self._tokenizer.decode_known(self._anchor)
        return final
