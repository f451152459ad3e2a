"""A suffix automaton with counts: all runs of tokens in a text, in space and time linear in the text.

Blumer et al. 1985, "The smallest automaton recognizing the subwords of a text". Each state stands for runs that occur
at the same places; its suffix link leads to the longest shorter run that occurs at more places.
"""

from __future__ import annotations

import heapq

_COUNTED = 16


class SuffixAutomaton:
    """Grows by one token at a time, in amortised constant time.

    Counts only the `_COUNTED` longest runs that end at a token, which bounds the work for a repeated token.
    """

    ROOT = 0

    def __init__(self) -> None:
        self._next: list[dict[int, int]] = [{}]
        self._links: list[int] = [-1]
        self._lengths: list[int] = [0]
        self._counts: list[int] = [0]
        self._last = self.ROOT
        self._size = 0

    def __len__(self) -> int:
        """Tokens of the text."""
        return self._size

    def append(self, token: int) -> None:
        """Adds a token at the text's end."""
        nexts, links, lengths = self._next, self._links, self._lengths
        new, at = len(lengths), self._last
        self._add({}, lengths[at] + 1, 0)
        while at >= 0 and token not in nexts[at]:
            nexts[at][token] = new
            at = links[at]
        if at >= 0:
            state = nexts[at][token]
            links[new] = state if lengths[state] == lengths[at] + 1 else self._split(at, token, state)
        self._last, self._size = new, self._size + 1
        self._count(new)

    def step(self, state: int, length: int, token: int) -> tuple[int, int]:
        """State and length of the longest known run that ends a reader's text, after one more token.

        Args:
            state: state of the run before ``token``; the automaton may have grown since.
            length: length of that run.
            token: the next token of the text.
        """
        nexts, links, lengths = self._next, self._links, self._lengths
        while state > 0 and length <= lengths[links[state]]:
            state = links[state]
        while token not in nexts[state]:
            if state == self.ROOT:
                return self.ROOT, 0
            state = links[state]
            length = lengths[state]
        return nexts[state][token], length + 1

    def repeated(self) -> tuple[int, int]:
        """State and length of the longest run that ends the text and occurs earlier in it."""
        state = max(self._links[self._last], self.ROOT)
        return state, self._lengths[state]

    def followers(self, state: int, most: int) -> tuple[list[tuple[int, int, int]], int]:
        """Followers of a run: the ``most`` frequent as (count, token, state), and the count of all."""
        nexts, counts = self._next[state], self._counts
        total = sum(counts[after] for after in nexts.values())
        return heapq.nlargest(most, ((counts[after], token, after) for token, after in nexts.items())), total

    def _split(self, at: int, token: int, state: int) -> int:
        """Moves the short runs of ``state``, which now occur at more places, to a new state."""
        nexts, links = self._next, self._links
        clone = len(links)
        self._add(dict(nexts[state]), self._lengths[at] + 1, self._counts[state], links[state])
        while at >= 0 and nexts[at].get(token) == state:
            nexts[at][token] = clone
            at = links[at]
        links[state] = clone
        return clone

    def _add(self, nexts: dict[int, int], length: int, count: int, link: int = ROOT) -> None:
        self._next.append(nexts)
        self._lengths.append(length)
        self._counts.append(count)
        self._links.append(link)

    def _count(self, state: int) -> None:
        counts, links = self._counts, self._links
        for _ in range(_COUNTED):
            if state <= 0:
                return
            counts[state] += 1
            state = links[state]
