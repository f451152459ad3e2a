"""Metrics of guesses: drafted, bought and accepted, and what drafters cost."""

from __future__ import annotations

from outrider.engine.decode.outcome import LENGTHS, Tally
from outrider.engine.speculation import Acceptance
from outrider.engine.speculation.policy.counts import Counts
from outrider.mesh.telemetry import counter, distributions, gauge, get_logger
from outrider.verifier.metrics.totals import Totals, shown

_MODEL = ["model"]
_BY_DRAFTER = ["model", "drafter"]
_BY_DEPTH = ["model", "drafter", "depth"]
_DRAFTED = counter(
    "spec_drafted_tokens", "Guesses that a step could have bought; depth 1 is the token behind the next.", _BY_DEPTH
)
_BOUGHT = counter("spec_bought_tokens", "Guesses verified.", _BY_DEPTH)
_ACCEPTED = counter("spec_accepted_tokens", "Guesses accepted.", _BY_DEPTH)
_TREES = counter("spec_drafts", "Trees verified: a sequence's guesses in one step count once.", _MODEL)
_LENGTH = distributions(
    "spec_acceptance_length", "Tokens that a step adds to a sequence that decodes.", _MODEL, LENGTHS
)
_UNUSABLE = counter(
    "spec_unusable_trees", "Refused trees: unknown ids, or not drawn as the rule of acceptance needs.", _BY_DRAFTER
)
_EXPOSED = counter("spec_exposed_drafting_seconds", "Time for which steps waited for a drafter.", _BY_DRAFTER)
_STEP = counter("spec_step_seconds", "Time of steps without prompts, predicted and real.", ["model", "kind"])
_ASKED = gauge("spec_drafter_asked", "1 if the drafter is asked, 0 if it is paused because it loses time.", _BY_DRAFTER)
_CHANGES = counter(
    "spec_drafter_changes",
    "Changes of a local drafter's version by kind: changed, rolled_back (tokens a second fell), refused.",
    ["model", "drafter", "kind"],
)
_LOST = gauge("spec_drafter_lost", "1 if fewer than 10 % of a head's last 256 first guesses were right.", _BY_DRAFTER)
_LOSSY = gauge("spec_lossy", "1 if the rule of acceptance changes the distribution of answers.", _MODEL)

_log = get_logger("verifier")


class GuessMetrics:
    """Copies the totals of guesses."""

    def __init__(self, model: str, tally: Tally) -> None:
        self._model, self._totals = model, Totals()
        self._warned: set[str] = set()
        _LENGTH.show(shown(tally.lengths), model)

    def update(self, counts: Counts, paused: frozenset[str], lost: frozenset[str]) -> None:
        """Adds the changes since the last call; ``paused`` and ``lost`` are the drafters that are."""
        for metric, by_depth in ((_DRAFTED, counts.drafted), (_BOUGHT, counts.bought), (_ACCEPTED, counts.accepted)):
            for (drafter, depth), count in list(by_depth.items()):
                self._totals.bring(metric, count, self._model, drafter, str(depth))
        for drafter in {drafter for drafter, _ in list(counts.drafted)}:
            _ASKED.labels(self._model, drafter).set(drafter not in paused)
            _LOST.labels(self._model, drafter).set(drafter in lost)
        for drafter, trees in list(counts.unusable.items()):
            self._warn(drafter)
            self._totals.bring(_UNUSABLE, trees, self._model, drafter)
        for drafter, seconds in list(counts.exposed.items()):
            self._totals.bring(_EXPOSED, seconds, self._model, drafter)
        for (drafter, kind), count in list(counts.changes.items()):
            self._totals.bring(_CHANGES, count, self._model, drafter, kind)
        self._totals.bring(_TREES, counts.trees, self._model)
        self._totals.bring(_STEP, counts.predicted, self._model, "predicted")
        self._totals.bring(_STEP, counts.real, self._model, "real")

    def refused(self, drafter: str) -> None:
        """Counts a version of a drafter that cannot be used."""
        _CHANGES.labels(self._model, drafter, "refused").inc()

    def rule(self, rule: Acceptance) -> None:
        """Notes the rule of acceptance."""
        _LOSSY.labels(self._model).set(rule.lossy)
        if rule.lossy:
            _log.warning("guesses are accepted by a rule that changes the answers' distribution", acceptance=rule.name)

    def _warn(self, drafter: str) -> None:
        if drafter not in self._warned:
            self._warned.add(drafter)
            _log.warning(
                "guesses are not used: unknown ids, or not drawn as the rule of acceptance needs", drafter=drafter
            )
