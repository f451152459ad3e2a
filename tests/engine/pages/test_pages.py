"""KV pages: holders, shared pages and eviction."""

from __future__ import annotations

from collections import deque

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from outrider.engine.pages.page_names import chain_hash
from outrider.engine.pages.page_table import OutOfPages, PageTable


def test_pages_of_a_sequence_are_consecutive_where_they_can_be() -> None:
    table = PageTable(8)
    first = table.allocate(None)
    assert [table.allocate(first), table.allocate(first + 1)] == [first + 1, first + 2]


def test_no_page_is_left_to_allocate_when_all_are_held() -> None:
    table = PageTable(2)
    table.allocate(table.allocate(None))
    with pytest.raises(OutOfPages):
        table.allocate(None)


def test_a_published_page_is_found_again_until_its_room_is_needed() -> None:
    table = PageTable(2)
    page, digest = table.allocate(None), chain_hash(b"salt", [1, 2])
    table.publish(page, digest)
    table.release([page])
    assert table.match([digest]) == [page]
    table.release([page])
    table.allocate(table.allocate(None))
    assert table.match([digest]) == []


def test_a_cached_page_does_not_give_way_to_the_page_before_it_while_others_are_free() -> None:
    table = PageTable(4)
    first = table.allocate(None)
    second = table.allocate(first)
    table.publish(second, b"second")
    table.release([second])
    assert table.allocate(first) != second
    assert table.match([b"second"]) == [second]


def test_pages_behind_another_prefix_or_salt_have_other_names() -> None:
    first, second = chain_hash(b"a", [1]), chain_hash(b"b", [1])
    assert first != second
    assert chain_hash(first, [2]) != chain_hash(second, [2])


def kept(table: PageTable, names: str) -> list[bytes]:
    """Publishes a chain of pages and releases it, so that ``table`` keeps it cached."""
    chain, pages = [name.encode() for name in names], table.match([name.encode() for name in names])
    for name in chain[len(pages) :]:
        pages.append(table.allocate(pages[-1] if pages else None))
        table.publish(pages[-1], name)
    table.release(pages)
    return chain


def used(table: PageTable, chain: list[bytes]) -> None:
    pages = table.match(chain)
    table.use(pages)
    table.release(pages)


def crowd(table: PageTable, count: int) -> str:
    """Allocates pages until ``count`` cached pages are evicted; returns the names of the pages that are left."""
    taken, before = [], table.evictions["sequence"]
    while table.evictions["sequence"] < before + count:
        taken.append(table.allocate(None))
    table.release(taken)
    return "".join(sorted(name.decode() for name in table.published))


def test_pages_that_requests_used_outlive_newer_ones_that_none_did() -> None:
    table = PageTable(8)
    used(table, kept(table, "ab"))
    kept(table, "cd")
    assert crowd(table, 2) == "ab"


def test_of_pages_that_were_used_as_often_the_oldest_goes_and_the_end_of_a_chain_before_its_beginning() -> None:
    table = PageTable(8)
    kept(table, "abc")
    kept(table, "de")
    assert crowd(table, 2) == "ade"


def test_a_page_that_takes_longer_to_compute_outlives_a_cheap_one() -> None:
    table = PageTable(8, lambda place: 1.0 + place)
    kept(table, "abc")
    kept(table, "d")
    assert crowd(table, 1) == "abc"


def test_no_page_goes_before_one_that_is_found_through_it() -> None:
    table = PageTable(8, lambda place: 1.0 + place)
    for number in range(6):
        used(table, kept(table, "abc"[: 1 + number % 3]))
        used(table, kept(table, "axy"[: 1 + number // 2]))
    left = [crowd(table, 1) for _ in range(4)]
    assert all(("c" not in names or "b" in names) and ("y" not in names or "x" in names) for names in left)
    assert all("a" in names for names in left)


def test_pages_that_were_used_often_long_ago_are_evicted() -> None:
    table = PageTable(3)
    hot = kept(table, "a")
    for _ in range(3):
        used(table, hot)
    for number in range(30):
        kept(table, chr(200 + number))
    assert table.match(hot) == []


def test_changes_list_pages_that_become_findable_and_cease_to_be() -> None:
    table = PageTable(2)
    table.changes = deque()
    kept(table, "ab")
    crowd(table, 2)
    assert list(table.changes) == [(b"a", True), (b"b", True), (b"b", False), (b"a", False)]


def test_a_page_that_is_published_again_keeps_its_first_name_and_leaves_none_behind() -> None:
    table = PageTable(2)
    page = table.allocate(None)
    table.publish(page, b"a", "tenant")
    table.publish(page, b"b", "tenant")
    table.forget("tenant")
    assert table.published == []


class Pages(RuleBasedStateMachine):
    """Sequences that come, grow, publish and go."""

    def __init__(self) -> None:
        super().__init__()
        self.table = PageTable(6)
        self.held: list[list[int]] = []
        self.named: set[bytes] = set()

    @rule()
    def start(self) -> None:
        self.held.append([])

    @rule(index=st.integers(0, 9))
    def grow(self, index: int) -> None:
        if self.held:
            pages = self.held[index % len(self.held)]
            try:
                pages.append(self.table.allocate(pages[-1] if pages else None))
            except OutOfPages:
                assert self.table.available == 0

    @rule(index=st.integers(0, 9), name=st.binary(min_size=1, max_size=1))
    def publish(self, index: int, name: bytes) -> None:
        if self.held and self.held[index % len(self.held)]:
            self.table.publish(self.held[index % len(self.held)][-1], name, f"tenant-{name[0] % 2}")
            self.named.add(name)

    @rule()
    def expire(self) -> None:
        self.table.expire()
        self.table.expire()
        assert self.table.available == len(self.table.unused(0, self.table.total))

    @rule(owner=st.sampled_from(["tenant-0", "tenant-1"]))
    def forget(self, owner: str) -> None:
        self.table.forget(owner)
        names = [name for name in self.named if f"tenant-{name[0] % 2}" == owner]
        assert not any(self.table.leading([name]) for name in names)
        unused = self.table.unused(0, self.table.total)
        assert not {page for pages in self.held for page in pages} & set(unused)

    @rule(name=st.binary(min_size=1, max_size=1))
    def share(self, name: bytes) -> None:
        self.held.append(self.table.match([name]))

    @rule(index=st.integers(0, 9))
    def end(self, index: int) -> None:
        if self.held:
            self.table.release(self.held.pop(index % len(self.held)))

    @invariant()
    def pages_are_accounted_for(self) -> None:
        self.table.check(self.held)


TestPages = Pages.TestCase
TestPages.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
