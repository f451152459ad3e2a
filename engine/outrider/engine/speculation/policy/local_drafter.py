"""Local drafters: the calls that each one needs, and for how long steps wait for it."""

from __future__ import annotations

from collections.abc import Mapping, Set
from collections.abc import Sequence as Seq

from outrider.engine.requests.sequence import Sequence
from outrider.engine.speculation import Drafter, DraftTree, Opening
from outrider.engine.speculation.drafters.drafter import plugin_name
from outrider.engine.speculation.drafters.states import States
from outrider.engine.speculation.policy.sequence_choice import READING, SequenceChoice
from outrider.engine.speculation.trees.price import StepCosts

OWN = "local:"
"""Prefix of the sources of local drafters' trees."""
_USUAL = 1 / 32  # the usual wait is a mean of 32 steps


class LocalDrafter:
    """One local drafter, which costs nothing while it is paused or no sequence wants it.

    Attributes:
        name: name of the drafter, with its version.
        plugin: the name without the version.
        judged: whether versions of it are compared; drafters that every verifier has, without a model, have none.
        source: source of its trees.
        traits: what the drafter states of itself.
        choice: chooses the sequences that the drafter is asked for; None to ask for all.
        paused: whether the drafter is paused.
        waited: seconds for which the step waited for the drafter; None if the step did not ask it.
        usual_wait: seconds for which steps usually wait for the drafter.
        sequences: numbers of the sequences that the drafter may guess for.
        seconds_without: seconds that the step would take without the drafter.
    """

    def __init__(self, drafter: Drafter, choice: SequenceChoice) -> None:
        self._drafter, self.name, self.source = drafter, drafter.name, f"{OWN}{drafter.name}"
        self.plugin, self.traits = plugin_name(drafter.name), drafter.traits
        self.judged = not self.traits.auto or self.traits.named or self.traits.shipped is not None
        self.choice = choice if self.traits.slow and self.traits.rests else None
        self.paused = False
        self.waited: float | None = None
        self.usual_wait = self._opening = 0.0
        self.sequences: set[int] = set()
        self._wanted: Set[int] = frozenset()
        self.seconds_without, self._reads_prompt = 0.0, False
        self._reading_tokens, self._reading_s = 0, 0.0
        self._read: dict[int, int] = {}
        self._uncommitted: dict[int, int] = {}

    @property
    def available(self) -> bool:
        """Whether the drafter is not paused and has sequences."""
        return bool(self.sequences) and not self.paused

    @property
    def lost(self) -> bool:
        """See `Drafter.lost`."""
        return self._drafter.lost

    def open(self, number: int, opening: Opening) -> None:
        """Starts guessing for a sequence."""
        self.sequences.add(number)
        self._drafter.open(number, opening)

    def follow(self, number: int, length: int, tokens: list[int]) -> None:
        """Passes ``tokens``, decided after ``length`` others, to the drafter; to a paused one when it is next asked."""
        if number in self._uncommitted or (self.paused and not self.traits.layers):
            self._uncommitted.setdefault(number, length)
        else:
            self._drafter.commit(number, length, tokens)

    def see(self, number: int, start: int, states: States) -> None:
        """Passes the ``states`` of tokens from ``start`` on to the drafter, also to a paused one."""
        if self.traits.layers:
            self._drafter.see(number, start, states.of(self.traits.layers))

    def close(self, sequence: Sequence) -> None:
        """Passes the last tokens of a sequence to the drafter and ends the sequence."""
        number = sequence.number
        self.sequences.discard(number)
        self._read.pop(number, None)
        if self.choice is not None:
            self.choice.close(number)
        if (length := self._uncommitted.pop(number, None)) is not None:
            self._drafter.commit(number, length, sequence.tokens[length:])
        self._drafter.close(number)

    def forget(self, tenant: str) -> None:
        """Drops what the drafter keeps of a tenant."""
        self._drafter.forget(tenant)

    def expire(self) -> None:
        """Has the drafter forget tenants that have not been there for long."""
        self._drafter.expire()

    def unread(self, sequence: Sequence) -> int:
        """Tokens of a sequence that the drafter has not read."""
        return len(sequence.tokens) - self._read.get(sequence.number, 0)

    def draft(
        self, running: Mapping[int, Sequence], wanted: Set[int], costs: StepCosts | None
    ) -> Seq[tuple[int, DraftTree]]:
        """The drafter's guesses for the sequences ``wanted``.

        Args:
            running: sequences by number.
            wanted: numbers of those to guess for.
            costs: what guesses cost in the step; None for a step in which nothing decodes.
        """
        if costs is not None:
            self._drafter.price(costs)
        for number, length in self._uncommitted.items():
            self._drafter.commit(number, length, running[number].tokens[length:])
        self._uncommitted.clear()
        if self.traits.rests:
            for number in self.sequences - wanted:
                self._drafter.rest(number)
        self._wanted = wanted
        for number in wanted:
            unread = self.unread(running[number])
            self._reading_tokens += unread if unread >= READING else 0
            self._read[number] = len(running[number].tokens)
        return self._drafter.draft()

    def learn(self, number: int, accepted: int) -> None:
        """Learns how many guesses of any drafter a step accepted for a sequence."""
        if self.choice is not None and number in self._wanted and not self._reading_tokens:
            self.choice.learn(number, accepted)

    def skip(self) -> None:
        """Notes that this step does not ask the drafter."""
        self.waited, self._wanted = None, frozenset()

    def time_wait(self, seconds: float, prompts: bool) -> None:
        """Learns how many seconds a step waited for the drafter, and whether the step computed ``prompts``.

        Time beside prompts of the target, and for prompts of the drafter, is kept for `opening`.
        """
        self._reads_prompt = self._reading_tokens > 0
        if prompts or self._reads_prompt:
            self.waited = 0.0
            self._opening += seconds
        else:
            self.waited = seconds
            self.usual_wait += (seconds - self.usual_wait) * _USUAL
        if self._reads_prompt:
            self._reading_s += seconds
            self._finish_reading()

    def _finish_reading(self) -> None:
        """Learns how long reading takes, once the drafter has read everything; a long prompt takes several calls."""
        if self._drafter.reading:
            return
        if self.choice is not None:
            self.choice.time_reading(self._reading_tokens, max(self._reading_s - self.usual_wait, 0.0))
        self._reading_tokens, self._reading_s = 0, 0.0

    def time_step(self, size: int, seconds: float) -> None:
        """Learns how many seconds a step without prompts took."""
        if self.choice is not None and self._wanted and not self._reads_prompt:
            self.choice.time_step(size, seconds - self.seconds_without)

    def opening(self) -> float:
        """The seconds that steps with prompts have waited for the drafter since the last call."""
        seconds, self._opening = self._opening, 0.0
        return seconds
