"""The draw on a CPU gives its definition's tokens; variates are computed once."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from outrider.kernels.philox import log_exponentials, variate_cache
from outrider.kernels.race_sample import Draws, cpu, edited_logits, reference
from outrider.kernels.race_sample.draws import BROKEN_FROM, GREEDY_BELOW
from outrider.native.levels import Level, supported_levels
from outrider.native.library import load
from outrider.native.race import race_of
from torch import Tensor

from tests.kernels.race_sample.drawing import NEVER, WAYS, awkward_logits, draws_like, of_rows, parameters

pytestmark = pytest.mark.filterwarnings("error")
CPU = torch.device("cpu")
LEVELS = [level for level in supported_levels() if level is supported_levels()[0] or level.name == "avx2"]


def on_cpu(draws: Draws) -> Draws:
    moved = {f.name: getattr(draws, f.name) for f in dataclasses.fields(draws)}
    lists = draws.penalties
    if lists is not None:
        moved["penalties"] = dataclasses.replace(
            lists, **{f.name: getattr(lists, f.name).cpu() for f in dataclasses.fields(lists)}
        )
    return Draws(**{name: value.cpu() if isinstance(value, Tensor) else value for name, value in moved.items()})


@settings(max_examples=60, deadline=None)
@given(
    rows=st.integers(0, 5),
    vocabulary=st.integers(1, 700),
    ways=st.sets(st.sampled_from(WAYS)),
    seed=st.integers(0, 10**6),
)
def test_it_draws_what_its_definition_draws(rows: int, vocabulary: int, ways: set[str], seed: int) -> None:
    logits = awkward_logits(rows, vocabulary, seed).cpu()
    draws, before = on_cpu(parameters(rows, vocabulary, *ways, seed=seed)), logits.clone()
    ours, expected = cpu.draw(logits, draws), reference.draw(logits, draws)
    assert torch.equal(ours, expected)
    assert torch.equal(logits, before)


def test_rows_that_are_greedy_truncated_or_neither_draw_as_if_alone() -> None:
    logits, draws = awkward_logits(24, 500, 3).cpu(), on_cpu(parameters(24, 500, *WAYS, seed=5))
    together = cpu.draw(logits, draws)
    for row in range(24):
        assert cpu.draw(logits[[row]], of_rows(draws, [row])) == together[row]


def test_a_row_from_which_nothing_can_be_drawn_says_so_and_harms_no_other() -> None:
    logits = torch.randn(6, 130)
    logits[1, 2] = float("nan")
    logits[2] = NEVER
    logits[3, 9] = float("inf")
    allowed = torch.full((6, 5), -1, dtype=torch.int32)
    allowed[4] = 0
    draws = on_cpu(draws_like(6, 0.9))
    for each in (draws, dataclasses.replace(draws, allowed=allowed)):
        tokens = cpu.draw(logits, each)
        assert torch.equal(tokens, reference.draw(logits, each))
        assert [token < 0 for token in tokens.tolist()] == [False, True, True, True, each.allowed is not None, False]


@pytest.mark.parametrize("level", LEVELS, ids=lambda level: level.name)
@pytest.mark.parametrize("wrong", ["nan", "inf"])
@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_a_broken_logit_is_seen_in_every_lane(level: Level, wrong: str, temperature: float) -> None:
    compiled = race_of(load(level), GREEDY_BELOW, BROKEN_FROM)
    rows = torch.randn(40, 40)
    assert compiled(rows, range(40), range(40), [temperature] * 40) is not None
    rows.fill_diagonal_(float(wrong))
    assert [compiled(row[None], [1], [1], [temperature]) for row in rows] == [None] * 40


@pytest.mark.parametrize("lacking", range(3))
def test_parameters_for_fewer_rows_than_there_are_are_refused(lacking: int) -> None:
    compiled = cpu.native_race()
    if compiled is None:
        pytest.skip("there is no compiled race here")
    given: list[list[int]] = [[1, 1], [1, 1], [1, 1]]
    given[lacking] = [1]
    with pytest.raises(ValueError, match="for 2 rows"):
        compiled(torch.zeros(2, 8), *given)


def test_what_is_edited_is_what_is_drawn_from() -> None:
    logits, draws = awkward_logits(5, 200, 8).cpu(), on_cpu(parameters(5, 200, "allowed", "penalties", seed=2))
    plain = dataclasses.replace(draws, allowed=None, penalties=None)
    assert torch.equal(cpu.draw(edited_logits(logits, draws), plain), cpu.draw(logits, draws))
    assert not torch.equal(edited_logits(logits, draws), logits)


@pytest.mark.parametrize("vocabulary", [3, 4096, 5000, 70_000])
def test_variates_come_from_a_block_that_is_computed_once(vocabulary: int, monkeypatch: pytest.MonkeyPatch) -> None:
    computed: list[int] = []

    def counted(seed: int, positions: Tensor, vocabulary: int) -> Tensor:
        computed.extend(positions.tolist())
        return log_exponentials(seed, positions, vocabulary)

    monkeypatch.setattr(variate_cache, "log_exponentials", counted)
    cache = variate_cache.VariateCache(10**7)
    for position in (5, 17, 16, 5, 6):
        expected = log_exponentials(2**64 - 3, torch.tensor([position]), vocabulary)[0]
        assert torch.equal(cache.row(2**64 - 3, position, vocabulary, CPU), expected)
    assert len(computed) == len(set(computed))
    assert not torch.equal(cache.row(1, 5, vocabulary, CPU), cache.row(2**64 - 3, 5, vocabulary, CPU))


def test_the_variates_that_were_asked_for_longest_ago_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    computed: list[int] = []
    monkeypatch.setattr(
        variate_cache,
        "log_exponentials",
        lambda seed, positions, vocabulary: computed.append(seed) or torch.zeros(16, vocabulary),
    )
    cache = variate_cache.VariateCache(3 * 16 * 10)
    for seed in (1, 2, 3, 1, 4, 1, 3, 2):
        cache.row(seed, 0, 10, CPU)
    assert computed == [1, 2, 3, 4, 2]
