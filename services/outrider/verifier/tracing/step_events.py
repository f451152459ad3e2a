"""What the engine writes into the time line (`outrider.mesh.telemetry.timeline`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence as Seq

from outrider.engine.decode.runner import Work
from outrider.engine.requests.sequence import Sequence
from outrider.engine.speculation.policy.local_drafter import OWN
from outrider.mesh.telemetry import timeline
from outrider.mesh.telemetry.timeline import SequenceStep, Step, TreeSize


class StepEvent:
    """A step that is about to run ``works``; `note` writes its result into the time line."""

    def __init__(self, works: Seq[Work]) -> None:
        self._before = [
            (work, len(work.sequence.tokens), work.sequence.accepted, _ready(work.sequence)) for work in works
        ]

    def note(self, began: float, ended: float, waited: float) -> None:
        """Writes the step; ``began`` and ``ended`` are times of `perf_counter`, ``waited`` is in seconds."""
        if (to := timeline()) is None:
            return
        rows = sum(len(work.tokens) for work, *_ in self._before)
        prompts = sum(len(work.tokens) for work, *_ in self._before if work.guesses is None)
        sequences = [_stepped(*before) for before in self._before]
        to.note(Step(began, to.instance, ended - began, waited, rows, prompts, sequences))


def _ready(sequence: Sequence) -> list[TreeSize]:
    """The usable parts of remote drafters' trees, each with the length that the tree was made for."""
    remote = [tree for source, tree in sequence.trees.items() if not source.startswith(OWN)]
    parts = [(tree.length, tree.after(sequence.tokens[tree.length :])) for tree in remote]
    return [TreeSize.of(sequence.number, length, tree.parents) for length, tree in parts if tree is not None]


def _stepped(work: Work, length: int, accepted: int, trees: list[TreeSize]) -> SequenceStep:
    sequence, bought = work.sequence, dict(Counter(work.guesses.drafters if work.guesses else ()))
    decided, right = len(sequence.tokens) - length, sequence.accepted - accepted
    return SequenceStep(sequence.number, sequence.request.id, length, decided, bought, right, trees)
