"""Which drafters are asked: those whose guesses save more time than they take. Others are tried again now and then."""

from __future__ import annotations

from dataclasses import dataclass, field

_TRIAL, _FADE = 48, 1 - 1 / 64
_SHORTEST, _LONGEST = 256, 8192
_LEAST = 0.01


@dataclass(frozen=True, slots=True)
class Yield:
    """What one drafter did in a step.

    Attributes:
        bought: of its guesses, how many were verified.
        accepted: of those, how many came true.
        drafting: seconds for which the step waited for it.
    """

    bought: int = 0
    accepted: int = 0
    drafting: float = 0.0


@dataclass(frozen=True, slots=True)
class Prices:
    """What a step's parts are worth in seconds.

    Attributes:
        token: what a plain step takes for each token.
        row: what a guess adds to a step.
        step: what the step took.
    """

    token: float
    row: float
    step: float


@dataclass(slots=True)
class _Book:
    earned: float = 0.0
    time: float = 0.0
    steps: int = 0
    quiet: int = 0
    rest: int = _SHORTEST

    def enter(self, done: Yield, prices: Prices) -> None:
        earned = done.accepted * prices.token - done.bought * prices.row - done.drafting
        self.earned = self.earned * _FADE + earned
        self.time = self.time * _FADE + prices.step
        self.steps += 1
        if self.steps >= _TRIAL:
            self._judge()

    def _judge(self) -> None:
        if self.earned >= self.time * _LEAST:
            self.rest = _SHORTEST
            return
        self.quiet, self.rest = self.rest, min(2 * self.rest, _LONGEST)
        self.earned = self.time = 0.0
        self.steps = 0


@dataclass(slots=True)
class Worth:
    """Keeps a book for each drafter. One that does not pay is left alone, for longer each time, and tried again."""

    _books: dict[str, _Book] = field(default_factory=dict)

    @property
    def quiet(self) -> frozenset[str]:
        """Drafters that are not asked at present."""
        return frozenset(name for name, book in self._books.items() if book.quiet)

    def step(self, drafter: str, done: Yield, prices: Prices) -> None:
        """Takes in a step of decoding at which ``drafter`` had guessed, or might have if it were not left alone."""
        book = self._books.setdefault(drafter, _Book())
        if book.quiet:
            book.quiet -= 1
        else:
            book.enter(done, prices)
