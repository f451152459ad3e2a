"""Many sequences' accepted rows move at once, by the Triton kernel and in torch."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from outrider.kernels import kv_compact
from outrider.kernels.backend import choice
from outrider.kernels.kv_compact import reference, triton
from outrider.kernels.pool import KvPool
from torch import Tensor

from tests.kernels.device import DEVICE, noise

PAGES, PAGE_SIZE = 36, 4
Moves = list[list[tuple[int, int]]]


def filled_pool(dtype: torch.dtype, kv_heads: int = 1, head_dim: int = 10) -> KvPool:
    pool = KvPool(2, PAGES, PAGE_SIZE, kv_heads, head_dim, dtype, DEVICE)
    pool.data.copy_(noise(*pool.data.shape).clamp(-100, 100))
    if pool.scales is not None:
        pool.scales.copy_(noise(*pool.scales.shape, seed=1))
    return pool


def lists(moves: Moves) -> tuple[Tensor, Tensor, Tensor]:
    offsets = list(accumulate((len(sequence) for sequence in moves), initial=0))
    pairs = [pair for sequence in moves for pair in sequence]
    sources, places = ([pair[side] for pair in pairs] for side in (0, 1))
    return (
        torch.tensor(offsets, dtype=torch.int32, device=DEVICE),
        torch.tensor(sources, dtype=torch.int64, device=DEVICE),
        torch.tensor(places, dtype=torch.int64, device=DEVICE),
    )


def bits(pool: KvPool) -> list[Tensor]:
    return [part.view(torch.uint8) for part in (pool.data, pool.scales) if part is not None]


@st.composite
def some_moves(draw: st.DrawFn) -> Moves:
    """Moves of up to three sequences, each within its own slots."""
    slots = draw(st.permutations(range(PAGES * PAGE_SIZE)))
    moves: Moves = []
    for sequence in range(draw(st.integers(0, 3))):
        own = slots[sequence * 48 : sequence * 48 + 48]
        places = draw(st.lists(st.sampled_from(own), unique=True, max_size=20))
        moves.append([(draw(st.sampled_from(own)), place) for place in places])
    return moves


@pytest.mark.parametrize("run", [triton.kv_compact_batch, kv_compact.kv_compact_batch])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int8, torch.float8_e4m3fn])
@settings(max_examples=10, deadline=None)
@given(moves=some_moves())
def test_each_row_is_found_at_its_new_place_and_nothing_else_has_moved(
    moves: Moves, dtype: torch.dtype, run: type
) -> None:
    pool, expected = filled_pool(dtype), filled_pool(dtype)
    run(pool, *lists(moves))
    reference.kv_compact_batch(expected, moves)
    assert all(torch.equal(*pair) for pair in zip(bits(pool), bits(expected), strict=True))


@pytest.mark.parametrize("shift", [1, -1, 17])
def test_a_full_ring_of_moves_turns_in_place(shift: int) -> None:
    pool, expected = filled_pool(torch.bfloat16, 2, 80), filled_pool(torch.bfloat16, 2, 80)
    moves = [[(slot, (slot + shift) % 64) for slot in range(64)]]
    triton.kv_compact_batch(pool, *lists(moves))
    reference.kv_compact_batch(expected, moves)
    assert torch.equal(pool.data, expected.data)


@pytest.mark.parametrize("run", [triton.kv_compact_batch, kv_compact.kv_compact_batch])
def test_a_source_of_minus_one_and_what_is_behind_the_last_offset_move_nothing(run: type) -> None:
    pool, expected = filled_pool(torch.float32), filled_pool(torch.float32)
    offsets, sources, places = lists([[(-1, 3), (5, 4)], [(9, 8)]])
    padding = torch.tensor([1, 2], device=DEVICE)
    run(pool, offsets, torch.cat([sources, padding]), torch.cat([places, padding + 20]))
    reference.kv_compact_batch(expected, [[(5, 4), (9, 8)]])
    assert torch.equal(pool.data, expected.data)


@pytest.fixture
def by_name(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("OUTRIDER_KERNELS", "triton")
    choice.cache_clear()
    yield
    choice.cache_clear()


@pytest.mark.usefixtures("by_name")
@pytest.mark.parametrize("count", [0, 5, 63, 70])  # 63 and 2 are more than a sequence may have
def test_sequences_move_by_their_pages(count: int) -> None:
    pool, expected = filled_pool(torch.float16), filled_pool(torch.float16)
    pages = [(page * 7 + 3) % PAGES for page in range(PAGES)]
    own = pages[:-1], pages[-1:]
    kept = [kv_compact.Kept(own[0], 6, [row + 1 for row in range(count)]), kv_compact.Kept(own[1], 2, [1, 0])]
    kv_compact.kv_compact(pool, kept)
    slots = [[page * PAGE_SIZE + offset for page in each for offset in range(PAGE_SIZE)] for each in own]
    moves = [[(slots[0][7 + row], slots[0][6 + row]) for row in range(count)]]
    reference.kv_compact_batch(expected, [*moves, [(slots[1][3], slots[1][2]), (slots[1][2], slots[1][3])]])
    assert torch.equal(pool.data, expected.data)


@pytest.mark.skipif(DEVICE.type != "cpu", reason="a failed assertion on a GPU ends the process's use of it")
@pytest.mark.parametrize(
    ("moves", "message"),
    [([[(144, 0)]], "no such slot"), ([[(0, -1)]], "no such slot"), ([[(1, 0)] * 65], "too many moves")],
)
def test_what_is_out_of_range_is_caught_where_kernels_are_checked(moves: Moves, message: str) -> None:
    with pytest.raises(Exception, match=message):
        triton.kv_compact_batch(filled_pool(torch.float32), *lists(moves))


def test_what_does_not_fit_is_refused() -> None:
    pool, (offsets, sources, places) = filled_pool(torch.float32), lists([[(5, 4)]])
    with pytest.raises(ValueError, match="offsets"):
        triton.kv_compact_batch(pool, offsets.long(), sources, places)
    with pytest.raises(ValueError, match="sources"):
        triton.kv_compact_batch(pool, offsets, sources.int(), places)
    with pytest.raises(ValueError, match="places"):
        triton.kv_compact_batch(pool, offsets, sources, places[:0])
