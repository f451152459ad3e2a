"""Structured output: at each node of a tree, allows only tokens that the grammar allows.

The allowed tokens follow from the answer's tokens alone, so another engine can go on with a request (fail-over).
"""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from time import thread_time
from typing import TYPE_CHECKING

from outrider.engine.errors import RequestError
from outrider.engine.logits.edits import EditBatch, Mask
from outrider.engine.logits.grammar_definitions import (
    MOST_BYTES,
    brief,
    definition,
    error_of,
    load_tokenizer,
    make_matcher,
)
from outrider.engine.logits.mask_ahead import MaskAhead
from outrider.engine.requests.parameters import GrammarText
from outrider.engine.speculation import NO_GUESSES, MergedTree

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

_MOST_CACHED = 64
_STEP_S = 0.02
"""CPU seconds that the masks of one sequence's guesses may take in a step."""
_SHARE = 0.125
"""Weight of the latest mask in the mean CPU time of a mask."""
_SLOW_S = 0.0025
"""Mean CPU seconds of a mask from which on another thread computes the masks of a grammar."""


class Grammars:
    """Compiles grammars for one vocabulary and caches the most recently used. Thread-safe.

    Args:
        tokenizer: gives the contents of the model's ``tokenizer.json``.
        vocabulary: width of the model's logits.
        eos_ids: the model's end-of-text ids, which end an answer.
        clock: CPU seconds of the thread, for the time that masks take.
    """

    def __init__(
        self,
        tokenizer: Callable[[], bytes],
        vocabulary: int,
        eos_ids: frozenset[int],
        clock: Callable[[], float] = thread_time,
    ) -> None:
        self._clock = clock
        self.tokenizer, self.vocabulary, self.eos_ids = tokenizer, vocabulary, sorted(eos_ids)
        self._trie: LLTokenizer | None = None
        self._compiled: OrderedDict[tuple[str, GrammarText], Grammar] = OrderedDict()
        self._lock = threading.Lock()

    def find(self, source: GrammarText, tenant: str = "") -> Grammar | None:
        """The compiled grammar of the tenant's ``source`` from the cache; None if it is not there or has failed."""
        key = _key(source, tenant)
        with self._lock:
            grammar = self._compiled.get(key)
            if grammar is None or grammar.failed:
                return None
            self._compiled.move_to_end(key)
            return grammar

    def compile(self, source: GrammarText, llg_definition: str | None = None, tenant: str = "") -> Grammar:
        """The compiled grammar of ``source``; `RequestError` if it, or any grammar, cannot be compiled here.

        ``llg_definition`` is the result of `definition`, if another process has called it. Tenants share no grammar: a
        sequence that reaches the lexer's limits ends all that share it, and the time to compile tells a known one.
        """
        if (cached := self.find(source, tenant)) is not None:
            return cached
        grammar = self._compile(source, llg_definition, tenant)
        with self._lock:
            self._compiled[_key(source, tenant)] = grammar
            while len(self._compiled) > _MOST_CACHED:
                self._compiled.popitem(last=False)
        return grammar

    def clear(self) -> None:
        """Empties the cache."""
        with self._lock:
            self._compiled.clear()

    def check(self, source: GrammarText) -> None:
        """Raises `RequestError` for a grammar that can be refused without compiling it."""
        if (size := len(source.text.encode())) > MOST_BYTES:
            raise refusal(f"has {size} bytes, over the limit of {MOST_BYTES}")
        if not self.eos_ids:
            raise refusal("needs an end-of-text id, and this model has none")
        try:
            import llguidance  # noqa: F401
        except ImportError:
            raise refusal("needs llguidance, which is not installed: pip install 'outrider[engine]'") from None

    def _compile(self, source: GrammarText, llg_definition: str | None, tenant: str) -> Grammar:
        self.check(source)
        tokenizer = self._load()
        try:
            matcher = make_matcher(tokenizer, llg_definition or definition(source.kind, source.text))
        except ValueError as error:
            raise refusal(f"cannot be compiled: {brief(error)}") from None
        matcher.deep_copy().compute_bitmask()  # the first mask is the most expensive one, and copies share it
        return Grammar(matcher, _key(source, tenant), self._clock)

    def _load(self) -> LLTokenizer:
        if self._trie is None:
            try:
                self._trie = load_tokenizer(self.tokenizer(), self.vocabulary, self.eos_ids)
            except ValueError as error:
                raise refusal(f"needs another kind of tokenizer than this model's: {error}") from None
        return self._trie


class Grammar:
    """A compiled grammar for any number of sequences.

    Attributes:
        failed: whether a sequence has reached a limit of the lexer, which all sequences share.
        slow: whether masks take long, so that steps go on without a sequence until another thread has its mask.
            Sequences share the lexer, and wait for each other's masks: so this holds for all or none.
        clock: as in `Grammars`.
    """

    def __init__(
        self, matcher: LLMatcher, key: tuple[str, GrammarText], clock: Callable[[], float] = thread_time
    ) -> None:
        self._matcher, self._made_for, self.clock = matcher, key, clock
        self.failed = self.slow = False

    def made_for(self, source: GrammarText, tenant: str) -> bool:
        """Whether this is the tenant's grammar of ``source``."""
        return self._made_for == _key(source, tenant)

    def guide(self, tokens: list[int], prompt: int, stop_ids: frozenset[int]) -> Guide:
        """A guide along ``tokens``, which the sequence extends; the first ``prompt`` of them are the prompt."""
        return Guide(self, tokens, prompt, stop_ids)

    def begin(self) -> LLMatcher:
        """A matcher at the beginning of the grammar."""
        return self._matcher.deep_copy()


class Guide:
    """The position of one sequence in its grammar: a `Rule` that bans the tokens that the grammar does not allow.

    Attributes:
        failure: why the grammar could not be followed; None if it was.
    """

    def __init__(self, grammar: Grammar, tokens: list[int], prompt: int, stop_ids: frozenset[int]) -> None:
        self._grammar, self._tokens, self._stops = grammar, tokens, stop_ids
        self._matcher, self._read = grammar.begin(), prompt
        self._mask_s = 0.0
        self._ahead = MaskAhead()
        self.failure: str | None = None

    def ready(self) -> bool:
        """Whether a step would not wait for the next mask; has another thread compute the mask of a slow grammar."""
        return not self._grammar.slow or self._ahead.ready(len(self._tokens), self._next_mask)

    def prune(self, guesses: MergedTree) -> MergedTree:
        """The guesses that the grammar allows and that do not end the answer, as many as `_STEP_S` has masks for."""
        if self._grammar.slow:
            return NO_GUESSES
        nodes = [node for node, *_ in self._walk(guesses)][: int(_STEP_S / max(self._mask_s, 1e-6))]
        if self._failed(self._matcher):
            return NO_GUESSES
        return guesses.take(nodes)

    def edit(self, batch: EditBatch, row: int, guesses: MergedTree) -> None:
        """As `Rule.edit`; nothing can be drawn behind a guess that the grammar does not allow."""
        batch.allow(row, self._ahead.take(len(self._tokens), self._next_mask))
        masks = {node: Mask(self._tokens, place, self._bits(matcher)) for node, matcher, place in self._walk(guesses)}
        for node, depth in enumerate(guesses.depths):
            batch.allow(row + 1 + node, masks.get(node) or Mask(self._tokens, self._read + depth, None))

    def _next_mask(self) -> Mask:
        """The mask behind the sequence's tokens."""
        self._catch_up()
        return Mask(self._tokens, self._read, self._bits(self._matcher))

    def _bits(self, matcher: LLMatcher) -> bytes | None:
        """The bits of the tokens that may come next; None if the matcher has failed."""
        if self._failed(matcher):
            return None
        began = self._grammar.clock()
        bits = matcher.compute_bitmask()
        self._mask_s += _SHARE * (self._grammar.clock() - began - self._mask_s)
        self._grammar.slow = self._grammar.slow or self._mask_s > _SLOW_S
        return None if self._failed(matcher) else bits

    def _failed(self, matcher: LLMatcher) -> bool:
        """Whether a matcher has failed. A failure is final, and all matchers that share the lexer fail too."""
        if matcher.is_error():
            self._grammar.failed = True
            self.failure = f"the grammar is too complex to be followed: {error_of(matcher)}"
        return matcher.is_error()

    def _catch_up(self) -> None:
        new = self._tokens[self._read :]
        if new:
            self._matcher.consume_tokens(new)
            self._read = len(self._tokens)

    def _walk(self, guesses: MergedTree) -> Iterator[tuple[int, LLMatcher, int]]:
        """Each allowed node, with a matcher that has read it and that later nodes may use up, and all it has read.

        No matcher goes back: llguidance keeps a matcher's last mask, and gives it again, after a rollback, at another
        place with as many lexemes.
        """
        self._catch_up()
        behind, children = {-1: (self._matcher, self._read)}, Counter([-1, *guesses.parents])
        for node, (token, parent) in enumerate(zip(guesses.tokens, guesses.parents, strict=True)):
            children[parent] -= 1
            if token in self._stops or parent not in behind:
                continue
            matcher, read = behind[parent]
            if children[parent]:
                matcher = matcher.deep_copy()
            if matcher.try_consume_tokens([token]):
                behind[node] = matcher, read + 1
                yield node, matcher, read + 1


def refusal(why: str) -> RequestError:
    """The error for a refused grammar."""
    return RequestError(f"grammar {why}", param="grammar")


def _key(source: GrammarText, tenant: str) -> tuple[str, GrammarText]:
    return tenant, source
