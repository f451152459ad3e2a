"""What may be drawn inside a thought and behind it: a budget ends a thought, and a grammar begins behind it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from outrider.engine.logits.edits import EditBatch, Mask
from outrider.engine.logits.grammar import Grammar, Guide
from outrider.engine.logits.grammar_definitions import error_of
from outrider.engine.speculation import NO_GUESSES, MergedTree
from outrider.engine.thoughts.tracker import Phase, Place, Tracker


class Budget:
    """The `Rule` of a thought's budget, for requests without a grammar.

    Args:
        tracker: follows the answer.
        tokens: prompt and answer, which the sequence extends; the first ``prompt`` of them are the prompt.
    """

    def __init__(self, tracker: Tracker, tokens: list[int], prompt: int) -> None:
        self._tracker, self._tokens = tracker, tokens
        self._place, self._read = tracker.start(tokens[:prompt]), prompt

    def edit(self, batch: EditBatch, row: int, guesses: MergedTree) -> None:
        """As `Rule.edit`: where the budget is used up, only the end mark may follow."""
        for token in self._tokens[self._read :]:
            self._place = self._tracker.after(self._place, token)
        self._read = len(self._tokens)
        if self._place.phase is Phase.ANSWERING:
            return
        places = [self._place]
        for token, parent in zip(guesses.tokens, guesses.parents, strict=True):
            places.append(self._tracker.after(places[parent + 1], token))
        for node, place in enumerate(places):
            if (due := self._tracker.due(place)) is not None:
                depth = guesses.depths[node - 1] if node else 0
                batch.allow(row + node, Mask(self._tokens, self._read + depth, _only([due], self._tracker.vocabulary)))


class _Node(NamedTuple):
    """A place in a tree: the tokens of the answer proper before it, and the bits of those that may follow."""

    place: Place
    said: tuple[int, ...]
    bits: bytes | None


class ThoughtGuide:
    """As `Guide`, for an answer that may think first: the grammar begins behind the thought.

    A thought is free, but for its budget and for tokens that would end the answer. An answer that may open a thought
    begins with its mark or as the grammar allows; with the mark of an answer without thought, where there is one.
    """

    def __init__(
        self, tracker: Tracker, grammar: Grammar, tokens: list[int], prompt: int, stop_ids: frozenset[int]
    ) -> None:
        self._tracker, self._grammar, self._tokens, self._prompt = tracker, grammar, tokens, prompt
        self._stops, self._read, self._failure = stop_ids, prompt, ""
        self._place = tracker.start(tokens[:prompt])
        self._inner: Guide | None = None
        self._free = _without(stop_ids, tracker.vocabulary)

    @property
    def failure(self) -> str | None:
        """Why the grammar could not be followed; None if it was."""
        return self._failure or (None if self._inner is None else self._inner.failure)

    def ready(self) -> bool:
        """As `Guide.ready`."""
        inner = self._follow()
        return inner is None or inner.ready()

    def prune(self, guesses: MergedTree) -> MergedTree:
        """As `Guide.prune`."""
        if (inner := self._follow()) is not None:
            return inner.prune(guesses)
        nodes = [node for node, _ in self._walk(guesses)][1:]
        if self._failure:
            return NO_GUESSES
        return guesses.take(nodes)

    def edit(self, batch: EditBatch, row: int, guesses: MergedTree) -> None:
        """As `Rule.edit`."""
        if (inner := self._follow()) is not None:
            return inner.edit(batch, row, guesses)
        bits = {node: found.bits for node, found in self._walk(guesses)}
        for node, depth in enumerate([0, *guesses.depths], -1):
            batch.allow(row + 1 + node, Mask(self._tokens, self._read + depth, bits.get(node)))

    def _follow(self) -> Guide | None:
        """Reads the sequence's new tokens; the grammar's own guide once the answer proper has begun."""
        if self._inner is None:
            for token in self._tokens[self._read :]:
                self._place = self._tracker.after(self._place, token)
            self._read = len(self._tokens)
            if self._place.phase is Phase.ANSWERING:
                self._inner = self._grammar.guide(self._tokens, self._prompt + self._place.begin, self._stops)
        return self._inner

    def _walk(self, guesses: MergedTree) -> Iterator[tuple[int, _Node]]:
        """The sequence's end (-1) and each allowed guess; no guess of an answer proper whose masks take long."""
        nodes = {-1: self._node(self._place, ())}
        yield -1, nodes[-1]
        for node, (token, parent) in enumerate(zip(guesses.tokens, guesses.parents, strict=True)):
            before = nodes.get(parent)
            if before is None or token in self._stops or not _has(before.bits, token):
                continue
            place = self._tracker.after(before.place, token)
            if place.phase is Phase.ANSWERING and self._grammar.slow:
                continue
            nodes[node] = self._node(place, self._said(before, place, token))
            yield node, nodes[node]

    def _said(self, before: _Node, place: Place, token: int) -> tuple[int, ...]:
        if place.phase is not Phase.ANSWERING:
            return ()
        if before.place.phase is Phase.ANSWERING:
            return (*before.said, token)
        return () if place.begin else (*before.place.seen, token)

    def _node(self, place: Place, said: tuple[int, ...]) -> _Node:
        if place.phase is Phase.ANSWERING:
            return _Node(place, said, self._allowed(said))
        if place.phase is Phase.THINKING:
            due = self._tracker.due(place)
            return _Node(place, (), self._free if due is None else _only([due], self._tracker.vocabulary))
        bits = _only(self._tracker.openings(place), self._tracker.vocabulary)
        plain = None if self._tracker.thought.plain else self._allowed(place.seen)
        return _Node(place, (), bits if plain is None else _either(bits, plain))

    def _allowed(self, said: tuple[int, ...]) -> bytes | None:
        """The bits of the tokens that the grammar allows behind ``said``; None for none."""
        matcher = self._grammar.begin()
        if said and matcher.try_consume_tokens(list(said)) < len(said):
            return None
        bits = matcher.compute_bitmask()
        if matcher.is_error():
            self._grammar.failed = True
            self._failure = f"the grammar is too complex to be followed: {error_of(matcher)}"
            return None
        return bits


def _only(tokens: Iterable[int], vocabulary: int) -> bytes:
    bits = bytearray(-(-vocabulary // 32) * 4)
    for token in tokens:
        bits[token >> 3] |= 1 << (token & 7)
    return bytes(bits)


def _without(tokens: Iterable[int], vocabulary: int) -> bytes:
    return bytes(255 ^ byte for byte in _only(tokens, vocabulary))


def _either(one: bytes, other: bytes) -> bytes:
    return bytes(left | right for left, right in zip(one, other, strict=False))  # the grammar may have one word more


def _has(bits: bytes | None, token: int) -> bool:
    return bits is not None and token >> 3 < len(bits) and bool(bits[token >> 3] & 1 << (token & 7))
