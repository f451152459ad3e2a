"""Memory for weights and pages: in huge pages where there are any, and memory all the same where there are none."""

from __future__ import annotations

import gc
import mmap
from itertools import pairwise

import pytest
import torch
from outrider.kernels.huge_pages import ALONE, CHUNK, HUGE, LINE, Arena, map_zeros
from outrider.kernels.pool import KvPool

from tests.kernels.smaps import grants_huge_pages, mapped_bytes, mapping_at, resident_bytes

_SIZES = (1, LINE - 1, LINE, LINE + 1, 5000, ALONE - LINE, ALONE, 3, CHUNK + 1, *(6 * [ALONE - 7000]), 64)
_asked = pytest.mark.skipif(not grants_huge_pages(), reason="Linux grants no huge pages here")


def test_pieces_of_an_arena_begin_with_a_line_are_zero_and_share_no_byte() -> None:
    arena = Arena()
    pieces = [arena.take(size) for size in _SIZES]
    assert [piece.numel() for piece in pieces] == list(_SIZES)
    assert all(piece.data_ptr() % LINE == 0 and piece.is_contiguous() for piece in pieces)
    spans = sorted((piece.data_ptr(), piece.data_ptr() + piece.numel()) for piece in pieces)
    assert all(end <= first for (_, end), (first, _) in pairwise(spans))
    assert not any(piece[:: HUGE // 2].any() or piece[-1] for piece in pieces)


def test_small_pieces_lie_one_behind_the_other_whatever_large_ones_come_between() -> None:
    arena = Arena()
    first, _, second = arena.take(LINE + 1), arena.take(ALONE), arena.take(1)
    assert first.data_ptr() % HUGE == 0
    assert second.data_ptr() == first.data_ptr() + 2 * LINE


def test_a_piece_outlives_its_arena() -> None:
    piece = Arena().take(5000)
    gc.collect()
    piece.fill_(7)
    assert int(piece.sum()) == 7 * 5000


@pytest.mark.parametrize("size", [10, 64 * HUGE])
def test_a_mapping_goes_back_with_its_last_tensor(size: int) -> None:
    before = mapped_bytes()
    memory = map_zeros(size)
    part = memory[5:9]
    del memory
    bytes_held = mapped_bytes()
    assert bytes_held - before >= size
    part.fill_(1)
    del part
    assert bytes_held - mapped_bytes() >= max(size, HUGE)


@pytest.mark.parametrize("huge", [HUGE, 1 << 28])
@pytest.mark.parametrize("size", [3, HUGE, 5 * HUGE + 1])
def test_whole_huge_pages_are_mapped(size: int, huge: int) -> None:
    memory = map_zeros(size, huge)  # newer kernels align mappings to 2 MiB by themselves
    around, _ = mapping_at(memory.data_ptr())
    address = memory.data_ptr()
    assert address % huge == 0
    assert address in around
    assert address + -(-size // huge) * huge - 1 in around


@_asked
def test_linux_may_put_huge_pages_there() -> None:
    memory = map_zeros(HUGE + 3)
    assert mapping_at(memory.data_ptr())[1]["THPeligible"] == "1"


def test_what_is_not_touched_takes_no_memory() -> None:
    memory = map_zeros(64 * HUGE)
    before = _resident(memory)
    memory[::HUGE][:3] = 1
    assert 3 << 12 <= _resident(memory) - before <= 3 * HUGE


def _resident(memory: torch.Tensor) -> int:
    """Bytes that are there of the mapping, with neighbours that Linux has joined to it."""
    return int(mapping_at(memory.data_ptr())[1]["Rss"].split()[0]) << 10


@pytest.mark.parametrize("kernel", ["of another system", "that knows no such advice"])
def test_without_huge_pages_there_is_memory_all_the_same(kernel: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if kernel == "of another system":
        monkeypatch.delattr(mmap, "MADV_HUGEPAGE", raising=False)
    else:
        monkeypatch.setattr(mmap, "MADV_HUGEPAGE", 12345, raising=False)
    memory = map_zeros(3 * HUGE)
    memory.fill_(1)
    assert int(memory.sum()) == 3 * HUGE


def test_more_than_there_is_is_refused() -> None:
    with pytest.raises(MemoryError, match="1152921504606846976 bytes"):
        map_zeros(1 << 60)
    with pytest.raises(MemoryError, match="cannot be allocated"):
        KvPool(1, 1 << 50, 16, 1, 32)


def test_memory_of_a_pool_is_there_before_a_step_wants_it() -> None:
    bytes_held = resident_bytes()
    pool = KvPool(2, 4096, 16, 2, 32)
    assert resident_bytes() - bytes_held >= pool.data.nbytes - HUGE


@_asked
def test_pages_of_a_pool_lie_where_linux_may_put_huge_ones_and_are_zero() -> None:
    pool = KvPool(2, 1024, 16, 2, 32, torch.bfloat16, packed=True)
    around, entry = mapping_at(pool.data.data_ptr())
    assert entry["THPeligible"] == "1"
    assert pool.data.data_ptr() % HUGE == 0
    assert pool.data.data_ptr() + pool.data.nbytes - 1 in around
    assert pool.data.is_contiguous()
    assert not pool.data.any()
    pool.slots[1][-1] = 3
    assert pool.data[1, -1].eq(3).all()
    assert pool.data.count_nonzero() == 2 * 2 * 32
