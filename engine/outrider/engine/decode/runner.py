"""Runs the target over a step's rows and draws a token at each row that asks for one."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from itertools import accumulate, repeat

import numpy as np
import torch
from outrider.engine.decode.places import Misplaced, draw_places
from outrider.engine.logits.edits import EditBatch
from outrider.engine.logits.likelihood import Score, score
from outrider.engine.models.llama import LlamaModel
from outrider.engine.requests.sequence import Sequence
from outrider.engine.sampling import Dice, Sampling, draws
from outrider.engine.scheduling.cost_curve import CostCurve
from outrider.engine.speculation import NO_GUESSES, Acceptance, MergedTree, VerifiedTree
from outrider.engine.speculation.acceptance.accept import Race
from outrider.engine.speculation.drafters.states import States
from outrider.kernels.batch import RaggedBatch, SequenceRows
from outrider.kernels.kv_compact import Kept
from outrider.kernels.race_sample import draw, edited_logits, race
from torch import Tensor

NOTHING = -1
"""Drawn at a row where the request's own rules allow no token."""
_MEASURED_ROWS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
_TREE = 64
_BETWEEN = {24: 16, 48: 32}
"""Numbers of rows that are measured only where a step of the number before takes less than a third of ``each_s``: slow
steps are limited by their multiplications, and their time grows evenly with rows."""


Rolls = tuple[Sampling, list[int]]
"""A request's sampling, and the absolute positions of its rows' draws."""


class BrokenLogits(Exception):
    """The target's logits at a row are not numbers."""


@dataclass(slots=True)  # quicker to make and to read than a named tuple, as each sequence of a step has one
class Work:
    """One sequence's rows in a step.

    Attributes:
        sequence: the sequence.
        tokens: ids of the rows; the first is the sequence's first pending token.
        guesses: the tree behind the only pending token, its nodes on rows 1 and up; None for a chunk of prompt.
        draws: whether tokens are drawn: at every row of a tree, at the last row of the last chunk of a prompt; never
            for an embedding.
    """

    sequence: Sequence
    tokens: list[int]
    guesses: MergedTree | None
    draws: bool


@dataclass(slots=True)
class DrawnRows:
    """What one sequence's rows drew.

    Attributes:
        tokens: the token of each row that draws, in order; `NOTHING` where no token may be drawn.
        logits: the target's logits at those rows, float32 [n, V]; None unless the request asks for log-probabilities.
        prompt: scores of the prompt's tokens that follow the rows, if the request asks for them.
        states: states of all rows, if the step was to keep some.
        pooled: for an embedding, the last row's state or the sum of all rows', float64 [hidden_size].
    """

    tokens: list[int]
    logits: Tensor | None
    prompt: list[Score]
    states: States | None = None
    pooled: Tensor | None = None


@dataclass(slots=True)
class RunTimes:
    """Seconds of all steps: of forward passes, and of drawing tokens. A GPU's pass ends within the drawing."""

    forward_s: float = 0.0
    sample_s: float = 0.0


class Runner:
    """The target model, its pages of keys and values, and the draws.

    Attributes:
        times: running totals since start.
    """

    def __init__(self, model: LlamaModel, pages: int, page_size: int, rule: Acceptance | None = None) -> None:
        self.model, self.rule = model, rule or Race({})
        self.pool = model.new_pool(pages, page_size)
        self._page_size, self.times = page_size, RunTimes()

    def dice(self, sampling: Sampling) -> Dice | None:
        """A sequence's dice; None for greedy sampling."""
        return None if sampling.greedy else Dice(sampling.seed, self.model.config.vocab_size, self.model.device)

    def run(self, works: Seq[Work], layers: tuple[int, ...] = ()) -> list[DrawnRows]:
        """Runs one forward pass over all rows; returns what each of ``works`` drew, with the states of ``layers``."""
        began = time.perf_counter()
        batch = self._batch([self._rows(work) for work in works])
        ids = np.array([token for work in works for token in work.tokens])
        states = self._new_states(len(ids), layers)
        hidden = self.model.forward(torch.from_numpy(ids).to(self.model.device), batch, self.pool, layers, states)
        prompts, places = [*self._score(hidden, works)], draw_places(works, batch)
        counts, logits, drawn = [*map(len, places)], hidden, list[int]()
        forwarded_at = time.perf_counter()
        if draws := sum(counts):
            logits = self.model.logits(hidden if draws == len(ids) else hidden[_drawing_rows(works, counts)])
            forwarded_at = time.perf_counter()
            drawn = self._draw(works, logits, places)
        results = _results(works, prompts, counts, logits, drawn)
        if states is not None:
            _share(results, works, States(layers, states))
        if any(not work.draws and work.sequence.request.pooling for work in works):
            _pool(results, works, hidden)
        self.times.forward_s += forwarded_at - began
        self.times.sample_s += time.perf_counter() - forwarded_at
        return results

    def _draw(self, works: Seq[Work], logits: Tensor, places: Seq[list[int]]) -> list[int]:
        """The token at each row that draws; float32 logits [n, V]. `Misplaced` for a mask of another place."""
        edits = _edits(works, logits.shape[-1], places)
        rolls = [(work.sequence.request.sampling, own) for work, own in zip(works, places, strict=True) if own]
        raced = None if edits or logits.device.type != "cpu" else _race_draws(rolls, logits)
        if raced is not None and isinstance(self.rule, Race):
            return raced
        return self._draw_edited(works, logits, edits, rolls, raced)

    @torch.inference_mode()
    def _draw_edited(
        self, works: Seq[Work], logits: Tensor, edits: EditBatch, rolls: Seq[Rolls], raced: list[int] | None
    ) -> list[int]:
        """`_draw` for logits that need edits or truncation (``raced`` is None), or another rule than `Race`."""
        if raced is not None:
            return self._apply_rule(works, logits, raced)
        changes = edits.penalties(len(logits), logits.device), edits.allowed(len(logits), logits.device)
        parameters = draws(rolls, logits.device, *changes)
        drawn = draw(logits, parameters).tolist()
        if NOTHING in drawn and not logits.amax(-1).isfinite().all():
            raise BrokenLogits("the target's logits are not numbers")
        if isinstance(self.rule, Race):
            return drawn  # edited logits would cost as much as the draw
        return self._apply_rule(works, edited_logits(logits, parameters), drawn)

    def _apply_rule(self, works: Seq[Work], logits: Tensor, drawn: list[int]) -> list[int]:
        """The tokens that the rule decides, given those ``drawn`` from logits [n, V]."""
        decided = self._accept(works, logits, drawn)
        return [NOTHING if token == NOTHING else decision for token, decision in zip(drawn, decided, strict=True)]

    def _accept(self, works: Seq[Work], logits: Tensor, drawn: list[int]) -> list[int]:
        """The rule's token at each row that draws; ``drawn`` at rows of sequences without guesses or dice."""
        row, decided = 0, []
        for work in works:
            end = row + _draw_count(work)
            tokens, dice = drawn[row:end], work.sequence.dice
            if work.guesses is not None and len(work.guesses) and dice is not None:
                sampling, position = work.sequence.request.sampling, work.sequence.cached + 1
                verified = VerifiedTree(work.guesses, logits[row:end], sampling, dice, position, tokens)
                tokens = self.rule.decide(verified)
            decided += tokens
            row = end
        return decided

    def _score(self, hidden: Tensor, works: Seq[Work]) -> Iterable[list[Score]]:
        """Scores of the prompt's tokens that follow each work's rows; empty for requests that do not ask for them."""
        scoring = any(work.guesses is None and work.sequence.scoring for work in works)
        return self._scores(hidden, works) if scoring else repeat([], len(works))

    def _scores(self, hidden: Tensor, works: Seq[Work]) -> Iterator[list[Score]]:
        start = 0
        for work in works:
            request, first = work.sequence.request, work.sequence.cached + 1
            behind = request.prompt[first : first + len(work.tokens)] if work.sequence.scoring else []
            if behind:
                logits = self.model.logits(hidden[start : start + len(behind)])
                yield score(logits, behind, request.parameters.logprobs or 0)
            else:
                yield []
            start += len(work.tokens)

    def _new_states(self, rows: int, layers: Seq[int]) -> Tensor | None:
        shape = rows, len(layers), self.model.config.hidden_size
        return torch.empty(shape, device=self.model.device) if layers else None

    def _batch(self, rows: list[SequenceRows]) -> RaggedBatch:
        return RaggedBatch.build(rows, self._page_size, device=self.model.device)

    def _rows(self, work: Work) -> SequenceRows:
        sequence, guesses, parents = work.sequence, work.guesses, None
        if guesses is not None and guesses.tokens:
            parents = [-1, *[parent + 1 for parent in guesses.parents]]
        return SequenceRows(len(work.tokens), sequence.cached, sequence.pages, parents)

    def keep(self, accepted: Iterable[tuple[Sequence, Seq[int]]]) -> None:
        """Moves keys and values of each tree's accepted rows (ascending) to the end of its sequence."""
        moved = [(sequence, rows) for sequence, rows in accepted if rows[-1] >= len(rows)]
        if moved:
            self.model.compact(self.pool, [Kept(sequence.pages, sequence.cached, rows) for sequence, rows in moved])

    def wipe(self, pages: Seq[int]) -> None:
        """Overwrites ``pages`` with zeros."""
        self.model.wipe(self.pool, pages)

    @torch.inference_mode()
    def measure(self, context: int, limit: int, rounds: int = 7, each_s: float = 0.3) -> CostCurve:
        """Measures seconds of a step by rows, over trees of up to 64 behind ``context`` tokens; also warms up.

        Takes the least of several rounds, to leave out other work on the machine. A number of rows up to ``limit`` is
        in every one of the ``rounds`` until its steps have taken ``each_s`` seconds, so that long steps, which other
        work changes less, run once or twice. Steps that are not compiled run at least twice: their first one prepares
        others.
        """
        least = 2 if self.model.compiled is None else 1
        times: dict[int, list[float]] = {rows: [] for rows in _MEASURED_ROWS if rows <= limit}
        for _ in range(rounds):
            for rows, own in times.items():
                is_due = len(own) < least or sum(own) < each_s
                if is_due and (rows not in _BETWEEN or min(times[_BETWEEN[rows]]) < each_s / 3):
                    own.append(self._time(rows, context))
        return CostCurve.through([(rows, min(own)) for rows, own in times.items() if own])

    def _time(self, rows: int, context: int) -> float:
        start = time.perf_counter()
        trees = [min(_TREE, rows - first) for first in range(0, rows, _TREE)]
        pages = range(-(-(context + trees[0]) // self._page_size))
        works = [SequenceRows(nodes, context, pages, range(-1, nodes - 1)) for nodes in trees]
        ids = torch.zeros(rows, dtype=torch.int64, device=self.model.device)
        hidden = self.model.forward(ids, self._batch(works), self.pool)
        self.model.logits(hidden).argmax(-1).tolist()
        return time.perf_counter() - start


def _race_draws(rolls: Seq[Rolls], logits: Tensor) -> list[int] | None:
    """The tokens of the fused draw; None if a request truncates, or if a logit is not a number."""
    samplings = [sampling for sampling, places in rolls for _ in places]
    if any(sampling.temperature > 0.0 and not sampling.truncation.keeps_all for sampling, _ in rolls):
        return None
    positions = [place for _, places in rolls for place in places]
    tokens = race(logits, [each.seed for each in samplings], positions, [each.temperature for each in samplings])
    return None if tokens is None or NOTHING in tokens else tokens


def _draw_count(work: Work) -> int:
    return 0 if not work.draws else len(work.tokens) if work.guesses is not None else 1


def _drawing_rows(works: Seq[Work], counts: Seq[int]) -> list[int]:
    """The step's rows that draw; ``counts`` is their number in each work."""
    ends = accumulate(len(work.tokens) for work in works)
    return [row for end, count in zip(ends, counts, strict=True) for row in range(end - count, end)]


def _edits(works: Seq[Work], vocabulary: int, places: Seq[list[int]]) -> EditBatch:
    """The edits that requests make to the logits of rows that draw at ``places``."""
    batch, row = EditBatch(vocabulary), 0
    if any(work.sequence.rules for work in works):
        for work, own in zip(works, places, strict=True):
            sequence = work.sequence
            for rule in sequence.rules if own else ():
                rule.edit(batch, row, work.guesses or NO_GUESSES)
            if sequence.guide is not None and not batch.masks_belong(row, sequence.tokens, own):
                raise Misplaced(sequence, "its mask belongs elsewhere")
            row += len(own)
    return batch


def _share(results: Seq[DrawnRows], works: Seq[Work], states: States) -> None:
    start = 0
    for work, result in zip(works, results, strict=True):
        end = start + len(work.tokens)
        result.states, start = states.at(slice(start, end)), end


def _pool(results: Seq[DrawnRows], works: Seq[Work], hidden: Tensor) -> None:
    """Gives each result of a sequence that is embedded its part of the states [rows, hidden_size]."""
    start = 0
    for work, result in zip(works, results, strict=True):
        end, pooling = start + len(work.tokens), work.sequence.request.pooling
        if pooling is not None:
            result.pooled = hidden[end - 1 if pooling == "last" else start : end].double().sum(0)
        start = end


def _results(
    works: Seq[Work], prompts: Seq[list[Score]], counts: Seq[int], logits: Tensor, drawn: list[int]
) -> list[DrawnRows]:
    """What each of ``works`` drew, by the numbers of their draws; logits [n, V] are those of the rows that draw."""
    results, row = [], 0
    for work, prompt, count in zip(works, prompts, counts, strict=True):
        end = row + count
        asked = count and work.sequence.request.parameters.logprobs is not None
        results.append(DrawnRows(drawn[row:end], logits[row:end] if asked else None, prompt))
        row = end
    return results
