"""The random numbers and the race, against published vectors and against their laws."""

from __future__ import annotations

import pytest
import torch
from outrider.kernels.philox import log_exponentials, philox_4x32
from outrider.kernels.race_sample import Truncation, race_sample, race_topk, truncate


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_philox_gives_the_known_answers_of_random123(
    counter: tuple[int, ...], key: tuple[int, ...], expected: tuple[int, ...]
) -> None:
    c0, c1, c2, c3 = (torch.tensor([word]) for word in counter)
    words = philox_4x32((c0, c1, c2, c3), (torch.tensor([key[0]]), torch.tensor([key[1]])))
    assert tuple(int(word) for word in words) == expected


def test_a_variate_depends_on_its_seed_position_and_entry_alone() -> None:
    alone = log_exponentials(7, torch.tensor([5]), 10)
    among = log_exponentials(7, torch.tensor([4, 5, 6]), 4096)
    assert torch.equal(alone[0], among[1, :10])
    assert not torch.equal(among[0], among[1])
    assert not torch.equal(alone, log_exponentials(7 + 2**32, torch.tensor([5]), 10))


def test_variates_are_finite_and_exponential() -> None:
    values = log_exponentials(11, torch.arange(64), 4096)
    assert torch.isfinite(values).all()
    variates = values.exp().double()
    assert abs(variates.mean() - 1) < 0.01
    assert abs((variates > 2).double().mean() - torch.e**-2) < 0.003


def test_the_race_draws_from_the_distribution() -> None:
    logits = torch.tensor([2.0, 1.0, 0.0, -1.0, -20.0])
    draws = 40_000
    winners = race_sample(logits.expand(draws, -1), log_exponentials(3, torch.arange(draws), 5))
    counts = torch.bincount(winners, minlength=5).double()
    expected = logits.double().softmax(-1) * draws
    chi_square = ((counts - expected).square() / expected.clamp(min=1)).sum()
    assert chi_square < 20  # 3 degrees of freedom that count: 1 in 5,000


def test_a_drafter_with_the_targets_distribution_guesses_every_draw() -> None:
    logits = torch.randn(100, 500, generator=torch.Generator().manual_seed(0))
    noise = log_exponentials(9, torch.arange(100), 500)
    tokens, confidences = race_topk(logits, noise, 3)
    assert torch.equal(tokens[:, 0], race_sample(logits, noise))
    assert (confidences[:, 0] >= confidences[:, 1]).all()
    assert (confidences.sum(-1) <= 1.0001).all()


def test_top_k_keeps_the_likeliest() -> None:
    truncated = truncate(torch.tensor([[0.0, 3.0, 1.0, 2.0]]), Truncation(top_k=2))
    assert torch.isfinite(truncated).tolist() == [[False, True, False, True]]


def test_top_p_keeps_the_smallest_set_that_reaches_it() -> None:
    probabilities = torch.tensor([[0.1, 0.5, 0.25, 0.15]])
    assert torch.isfinite(truncate(probabilities.log(), Truncation(top_p=0.6))).tolist() == [[False, True, True, False]]
    assert torch.isfinite(truncate(probabilities.log(), Truncation(top_p=0.01))).tolist() == [
        [False, True, False, False]
    ]


def test_min_p_drops_what_is_unlikely_beside_the_likeliest() -> None:
    probabilities = torch.tensor([[0.1, 0.5, 0.25, 0.15]])
    assert torch.isfinite(truncate(probabilities.log(), Truncation(min_p=0.3))).tolist() == [[False, True, True, True]]


def test_truncating_a_row_does_not_depend_on_the_others() -> None:
    rows = torch.randn(33, 4096, generator=torch.Generator().manual_seed(1))
    truncation = Truncation(top_k=50, top_p=0.9, min_p=0.01)
    together = truncate(rows, truncation)
    assert all(torch.equal(truncate(rows[i : i + 1], truncation)[0], together[i]) for i in range(33))
