"""Text from tokens one at a time."""

from __future__ import annotations

import codecs
from typing import Protocol

from outrider.models.text.tokenizer import Tokenizer


class IncrementalDecoder:
    """Turns a sequence of ids into text as they come, each piece of text final when it is given out.

    What `push` returned, joined, with `flush` at the end, equals ``tokenizer.decode`` of all ids: half a
    character waits for its other half, and bytes that never become one come out as U+FFFD. An id without a
    token (models pad their vocabulary) has no text.
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
        """Text that ``token`` made final, often empty."""

    def flush(self) -> str:
        """Text that still waited; the decoder then stands at the start of nothing and may not be used on."""


class _Bytes:
    """Byte-level tokenizers: a text is the bytes of its tokens, so an UTF-8 decoder is all there is to it.

    Most tokens are ASCII, and where no half character waits these are a text by themselves.
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
    """Other tokenizers: the decoder runs over the last finished token and what came since.

    The finished token is kept because its neighbour decides about leading spaces. A run of byte tokens waits
    for its end: one bad byte makes U+FFFD of the whole run.
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
