"""Goals of the kernels on a Hopper GPU, and whether measurements meet them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from outrider.benches.kernels.gpu import Ceiling, Timing

_LONG = 8192
_TREE = 64
_GAINS = {"int8": 1.7, "int4": 2.8}


@dataclass(frozen=True, slots=True)
class Goal:
    """A figure and its limit.

    Attributes:
        name: of the figure.
        worst: the figure's worst value over all its cases.
        case: the case of that value.
        limit: bound of the figure.
        least: whether the limit is a lower bound, else an upper one.
    """

    name: str
    worst: float
    case: str
    limit: float
    least: bool

    @property
    def met(self) -> bool:
        """Whether the figure is within its limit."""
        return self.worst >= self.limit if self.least else self.worst <= self.limit


def goals(timings: Iterable[Timing], most: Ceiling) -> Iterator[Goal]:
    """The goals of strict mode, the default, for which there are timings."""
    timings = [timing for timing in timings if timing.case.strict]
    figures = {
        ("attention's share of a copy's bandwidth, from 8k tokens on", 0.8, True): _attention(timings, most),
        ("a matmul of 64 rows over one of 1", 1.15, False): _tall(timings),
        ("a draw over reading its logits", 2.0, False): _draws(timings, most),
        **{
            (f"{name} over plain weights at one row", gain, True): _gain(timings, name) for name, gain in _GAINS.items()
        },
    }
    for (name, limit, least), values in figures.items():
        cases = list(values)
        if cases:
            worst, case = (min if least else max)(cases)
            yield Goal(name, worst, case, limit, least)


Figures = Iterator[tuple[float, str]]


def _attention(timings: list[Timing], most: Ceiling) -> Figures:
    for timing in timings:
        step = timing.case.step
        if timing.case.op == "tree_attention" and step.context >= _LONG and step.nodes <= _TREE:
            yield timing.bandwidth / most.bandwidth, _name(timing)


def _tall(timings: list[Timing]) -> Figures:
    ones = _matmuls(timings, 1)
    for key, timing in _matmuls(timings, _TREE).items():
        if key in ones:
            yield timing.seconds / ones[key].seconds, _name(timing)


def _draws(timings: list[Timing], most: Ceiling) -> Figures:
    for timing in timings:
        if timing.case.op == "race_sample":
            yield most.bandwidth / timing.bandwidth, _name(timing)


def _gain(timings: list[Timing], quantization: str) -> Figures:
    ones = _matmuls(timings, 1)
    for (shape, part), timing in ones.items():
        plain = ones.get((shape.removesuffix(f"-{quantization}"), part))
        if plain is not None and timing.case.shape.quantization == quantization and part != "logits":
            yield plain.seconds / timing.seconds, _name(timing)


def _matmuls(timings: list[Timing], rows: int) -> dict[tuple[str, str], Timing]:
    return {(t.case.shape.name, t.case.part): t for t in timings if t.case.op == "linear" and t.case.step.rows == rows}


def _name(timing: Timing) -> str:
    case = timing.case
    return f"{case.shape.name} {case.name} {case.step.name}"
