"""Bills of requests whose readers join, leave, die and return."""

from __future__ import annotations

import random
from dataclasses import dataclass

from outrider.gateway.admission.charge import FIRST, Bill

CHOICES = 2


@dataclass
class _Reader:
    name: str
    start: list[int]
    heard: list[int]


def test_every_token_is_charged_once_in_whatever_order_readers_come_and_go() -> None:
    for seed in range(200):
        _charge(seed)


def _charge(seed: int) -> None:
    """At random, a verifier generates, and readers receive tokens, join and leave."""
    rng = random.Random(seed)
    bill, charged, made = Bill([0] * CHOICES), 0, [0] * CHOICES
    readers = [_Reader(FIRST, [0] * CHOICES, [0] * CHOICES)]
    for turn in range(30):
        made = [count + rng.randrange(5) for count in made]
        for reader in readers:
            reader.heard = [rng.randint(least, most) for least, most in zip(reader.heard, made, strict=True)]
        if rng.random() < 0.3:
            known = [rng.randint(count // 2, count) for count in made]
            bill = bill.take(str(turn), known)
            readers.append(_Reader(str(turn), bill.paid, [0] * CHOICES))
        if readers and rng.random() < 0.3:
            left = readers.pop(rng.randrange(len(readers)))
            bill, share = bill.end(left.name, left.start, left.heard)
            assert share >= 0
            charged += share
    last = bill.take("last", made)
    for reader in [*readers, _Reader("last", last.paid, made)]:
        last, share = last.end(reader.name, reader.start, made)
        charged += share
    assert charged == sum(made)
    assert (last.paid, last.payer, last.ends) == (made, "", {})


def test_what_is_made_after_everybody_left_is_charged_to_who_comes_back() -> None:
    bill, charged = Bill([0]).end(FIRST, [0], [10])
    assert charged == 10
    bill = bill.take("b", [15])
    assert bill.paid == [10]
    assert bill.end("b", [10], [40]) == (Bill([40], ""), 30)


def test_of_one_that_died_what_it_had_reserved_is_left_and_no_more_is_charged_for_it() -> None:
    bill = Bill([0]).take("b", [15])
    assert bill.end("b", bill.paid, [40])[1] == 25


def test_a_reader_that_goes_on_after_the_payer_has_left_is_charged_for_that() -> None:
    bill = Bill([0]).take("b", [15])
    bill, charged = bill.end("b", bill.paid, [20])
    assert charged == 5
    assert bill.end(FIRST, [0], [50]) == (Bill([50], ""), 15 + 30)
