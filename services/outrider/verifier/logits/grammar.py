"""Structured output: at each node of a tree, only tokens after which the answer can still become what it has to be.

What may come next follows from the answer's tokens alone, so a replica that takes a request over reads them again.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path
from time import thread_time
from typing import TYPE_CHECKING

from outrider.mesh.errors import InvalidRequest
from outrider.models.speculation import NO_GUESSES, MergedTree
from outrider.v1 import sampling_pb2 as pb
from outrider.verifier.logits.edits import EditBatch
from outrider.verifier.logits.grammar_definitions import (
    MOST_BYTES,
    brief,
    definition,
    error_of,
    load_tokenizer,
    make_matcher,
)

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

_KEPT = 64
_STEP_S = 0.02
"""CPU time within which the masks of one sequence's guesses are to be had in a step."""
_SHARE = 0.125
"""Weight of the latest mask in what a mask takes."""


class Grammars:
    """Compiles grammars for one vocabulary and keeps the latest. Thread-safe.

    Args:
        tokenizer: the model's ``tokenizer.json``.
        vocabulary: width of the model's logits.
        eos_ids: the model's end-of-text ids, with which an answer ends.
        clock: CPU seconds of the thread, by which masks are timed.
    """

    def __init__(
        self,
        tokenizer: Path,
        vocabulary: int,
        eos_ids: frozenset[int],
        clock: Callable[[], float] = thread_time,
    ) -> None:
        self._clock = clock
        self.path, self.vocabulary, self.eos_ids = tokenizer, vocabulary, sorted(eos_ids)
        self._tokenizer: LLTokenizer | None = None
        self._compiled: OrderedDict[bytes, Grammar] = OrderedDict()
        self._lock = threading.Lock()

    def known(self, message: pb.Grammar) -> Grammar | None:
        """The grammar in ``message`` where it has been compiled; one that reached a limit is not kept."""
        key = _key(message)
        with self._lock:
            found = self._compiled.get(key)
            if found is None or found.failed:
                return None
            self._compiled.move_to_end(key)
            return found

    def compile(self, message: pb.Grammar, read: str | None = None) -> Grammar:
        """The grammar in ``message``; `InvalidRequest` for one that cannot be compiled, and where none can be.

        ``read`` is what `definition` made of it elsewhere.
        """
        if (found := self.known(message)) is not None:
            return found
        made = self._compile(message, read)
        with self._lock:
            self._compiled[_key(message)] = made
            while len(self._compiled) > _KEPT:
                self._compiled.popitem(last=False)
        return made

    def check(self, message: pb.Grammar) -> None:
        """`InvalidRequest` for what need not be compiled to be refused."""
        kind_and_text(message)
        if message.ByteSize() > MOST_BYTES:
            raise refusal(f"has {message.ByteSize()} bytes, over the limit of {MOST_BYTES}")
        if not self.eos_ids:
            raise refusal("needs an end-of-text id, and this model has none")
        try:
            import llguidance  # noqa: F401
        except ImportError:
            raise refusal("needs llguidance, which is not installed with this verifier") from None

    def _compile(self, message: pb.Grammar, read: str | None) -> Grammar:
        self.check(message)
        tokenizer = self._load()
        try:
            matcher = make_matcher(tokenizer, read or definition(*kind_and_text(message)))
        except ValueError as error:
            raise refusal(f"cannot be compiled: {brief(error)}") from None
        matcher.deep_copy().compute_bitmask()  # the dearest of all, which copies share
        return Grammar(matcher, self._clock)

    def _load(self) -> LLTokenizer:
        if self._tokenizer is None:
            try:
                self._tokenizer = load_tokenizer(self.path, self.vocabulary, self.eos_ids)
            except ValueError as error:
                raise refusal(f"needs another kind of tokenizer than this model's: {error}") from None
        return self._tokenizer


class Grammar:
    """A compiled grammar, which any number of sequences may follow.

    Attributes:
        failed: whether one of them has reached a limit of the lexer, which they share.
        clock: as of `Grammars`.
    """

    def __init__(self, matcher: LLMatcher, clock: Callable[[], float] = thread_time) -> None:
        self._matcher, self.clock = matcher, clock
        self.failed = False

    def guide(self, tokens: list[int], prompt: int, stop_ids: frozenset[int]) -> Guide:
        """A guide along ``tokens``, which others extend; the first ``prompt`` of them are not the answer's."""
        return Guide(self, tokens, prompt, stop_ids)

    def begin(self) -> LLMatcher:
        """A matcher at the beginning."""
        return self._matcher.deep_copy()


class Guide:
    """Where one sequence stands in its grammar. As a `Rule` it bans what the grammar does at each node.

    Attributes:
        failure: why the grammar could not be followed any further, if that is so.
    """

    def __init__(self, grammar: Grammar, tokens: list[int], prompt: int, stop_ids: frozenset[int]) -> None:
        self._grammar, self._tokens, self._stops = grammar, tokens, stop_ids
        self._matcher, self._read = grammar.begin(), prompt
        self._mask_s = 0.0
        self.failure: str | None = None

    def prune(self, guesses: MergedTree) -> MergedTree:
        """The guesses that the grammar allows and behind which the answer goes on."""
        kept = list(self._walk(guesses))[: int(_STEP_S / max(self._mask_s, 1e-6))]
        if self._failed():
            return NO_GUESSES
        return guesses if len(kept) == len(guesses) else guesses.take(kept)

    def edit(self, batch: EditBatch, row: int, guesses: MergedTree) -> None:
        """As `Rule.edit`; rows behind guesses that `prune` drops are left as they are."""
        batch.allow(row, self._mask())
        left = set(range(len(guesses)))
        for node in self._walk(guesses):
            batch.allow(row + 1 + node, self._mask())
            left.discard(node)
        if self._failed():
            for node in left:
                batch.allow(row + 1 + node, None)

    def _mask(self) -> bytes | None:
        """What may come next; None where the matcher has failed."""
        self._catch_up()
        if self._matcher.is_error():
            return None
        began = self._grammar.clock()
        bits = self._matcher.compute_bitmask()
        self._mask_s += _SHARE * (self._grammar.clock() - began - self._mask_s)
        return None if self._matcher.is_error() else bits

    def _failed(self) -> bool:
        """Whether the matcher has failed. It stays so, and has all that share its lexer fail too."""
        if self._matcher.is_error():
            self._grammar.failed = True
            self.failure = f"the grammar is too complex to be followed: {error_of(self._matcher)}"
        return self._matcher.is_error()

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


def kind_and_text(message: pb.Grammar) -> tuple[str, str]:
    """The definition in ``message``, as `definition` takes it; `InvalidRequest` where there is none."""
    match message.WhichOneof("kind"):
        case "json_schema":
            return "json_schema", message.json_schema
        case "regex":
            return "regex", message.regex
        case "context_free":
            return "context_free", message.context_free
        case "choice" if message.choice.texts:
            return "choice", json.dumps(list(message.choice.texts))
    raise refusal("must be a JSON Schema, a regular expression, a context-free grammar or at least one text")


def refusal(why: str) -> InvalidRequest:
    """What is wrong with a grammar."""
    return InvalidRequest(f"grammar {why}", param="grammar")


def _key(message: pb.Grammar) -> bytes:
    return bytes(message.SerializeToString(deterministic=True))
