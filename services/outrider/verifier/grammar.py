"""Structured output: at each node of a tree, only tokens after which the answer can still become what it has to be.

What may come next follows from the answer's tokens alone, so a replica that takes a request over reads them again.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from outrider.mesh.errors import InvalidRequest
from outrider.models.speculation import MergedTree
from outrider.v1 import sampling_pb2 as pb
from outrider.verifier.edits import EditBatch

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer
    from llguidance._lib import JsonCompileOptions

_KEPT = 64
_MOST_BYTES = 256 << 10
_BLANKS = r"[\x20\x0A]{1,16}"
"""Between JSON's tokens: enough to be indented, and no endless row of blanks, which small models like to write."""


class Grammars:
    """Compiles grammars for one vocabulary and keeps the latest. Thread-safe.

    Args:
        tokenizer: the model's ``tokenizer.json``.
        vocabulary: width of the model's logits.
        eos_ids: the model's end-of-text ids, with which an answer ends.
    """

    def __init__(self, tokenizer: Path, vocabulary: int, eos_ids: frozenset[int]) -> None:
        self._path, self._vocabulary, self._eos = tokenizer, vocabulary, sorted(eos_ids)
        self._tokenizer: LLTokenizer | None = None
        self._compiled: OrderedDict[bytes, Grammar] = OrderedDict()
        self._lock = threading.Lock()

    def compile(self, message: pb.Grammar) -> Grammar:
        """The grammar in ``message``; `InvalidRequest` for one that cannot be compiled, and where none can be."""
        key = message.SerializeToString(deterministic=True)
        with self._lock:
            if key not in self._compiled:
                self._compiled[key] = self._compile(message)
            self._compiled.move_to_end(key)
            while len(self._compiled) > _KEPT:
                self._compiled.popitem(last=False)
            return self._compiled[key]

    def _compile(self, message: pb.Grammar) -> Grammar:
        if message.ByteSize() > _MOST_BYTES:
            raise _refusal(f"has {message.ByteSize()} bytes, over the limit of {_MOST_BYTES}")
        if not self._eos:
            raise _refusal("needs an end-of-text id, and this model has none")
        try:
            from llguidance import LLMatcher
        except ImportError:
            raise _refusal("needs llguidance, which is not installed with this verifier") from None
        matcher = LLMatcher(self._load(), _definition(message), log_level=0)
        if matcher.is_error():
            raise _refusal(f"cannot be compiled: {matcher.get_error()}")
        return Grammar(matcher)

    def _load(self) -> LLTokenizer:
        from llguidance import LLTokenizer

        if self._tokenizer is None:
            try:
                self._tokenizer = LLTokenizer(str(self._path), n_vocab=self._vocabulary, eos_token=self._eos)
            except ValueError as error:
                raise _refusal(f"needs another kind of tokenizer than this model's: {error}") from None
        return self._tokenizer


class Grammar:
    """A compiled grammar, which any number of sequences may follow."""

    def __init__(self, matcher: LLMatcher) -> None:
        self._matcher = matcher

    def guide(self, tokens: list[int], prompt: int, stop_ids: frozenset[int]) -> Guide:
        """A guide along ``tokens``, which others extend; the first ``prompt`` of them are not the answer's."""
        return Guide(self._matcher.deep_copy(), tokens, prompt, stop_ids)


class Guide:
    """Where one sequence stands in its grammar. As a `Rule` it bans what the grammar does at each node."""

    def __init__(self, matcher: LLMatcher, tokens: list[int], prompt: int, stop_ids: frozenset[int]) -> None:
        self._matcher, self._tokens, self._stops = matcher, tokens, stop_ids
        self._read = prompt

    def prune(self, guesses: MergedTree) -> MergedTree:
        """The guesses that the grammar allows and behind which the answer goes on."""
        kept = list(self._walk(guesses))
        return guesses if len(kept) == len(guesses) else guesses.take(kept)

    def edit(self, batch: EditBatch, row: int, guesses: MergedTree) -> None:
        """As `Rule.edit`; rows behind guesses that `prune` drops are left as they are."""
        batch.allow(row, self._mask())
        for node in self._walk(guesses):
            batch.allow(row + 1 + node, self._mask())

    def _mask(self) -> bytes | None:
        self._catch_up()
        return None if self._matcher.is_error() else self._matcher.compute_bitmask()

    def _catch_up(self) -> None:
        new = self._tokens[self._read :]
        if new:
            self._matcher.consume_tokens(new)
            self._read = len(self._tokens)

    def _walk(self, guesses: MergedTree) -> Iterator[int]:
        """Goes through the tree, depth first, and yields each allowed node while the matcher stands behind it."""
        self._catch_up()
        below: list[list[int]] = [[] for _ in range(len(guesses) + 1)]
        for node, parent in enumerate(guesses.parents):
            below[parent + 1].append(node)
        waiting, depth = [(node, 1) for node in below[0]], 0
        while waiting:
            node, level = waiting.pop()
            self._matcher.rollback(depth - level + 1)
            depth = level - 1
            token = guesses.tokens[node]
            if token not in self._stops and self._matcher.try_consume_tokens([token]):
                depth = level
                yield node
                waiting.extend((child, level + 1) for child in below[node + 1])
        self._matcher.rollback(depth)


def _definition(message: pb.Grammar) -> str:
    """The grammar as llguidance reads it; `InvalidRequest` for one that it does not read at all."""
    from llguidance import LLMatcher, grammar_from

    try:
        match message.WhichOneof("kind"):
            case "json_schema":
                options: JsonCompileOptions = {"whitespace_pattern": _BLANKS}
                return LLMatcher.grammar_from_json_schema(message.json_schema, defaults=options)
            case "regex":
                return grammar_from("regex", message.regex)
            case "context_free":
                return grammar_from("grammar", message.context_free)
            case "choice" if message.choice.texts:
                return grammar_from("choice", json.dumps(list(message.choice.texts)))
    except ValueError as error:
        raise _refusal(f"cannot be compiled: {error}") from None
    raise _refusal("must be a JSON Schema, a regular expression, a context-free grammar or at least one text")


def _refusal(why: str) -> InvalidRequest:
    return InvalidRequest(f"grammar {why}", param="grammar")
