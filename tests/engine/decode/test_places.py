"""A draw refuses logits, dice and masks that belong to another sequence or place."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from outrider.engine.decode.places import Misplaced
from outrider.engine.decode.runner import Runner, Work
from outrider.engine.logits.edits import EditBatch, Mask
from outrider.engine.models.llama import LlamaModel
from outrider.engine.pages.page_table import PageTable
from outrider.engine.requests.output import Finish, Output
from outrider.engine.requests.sequence import Sequence
from outrider.engine.speculation import NO_GUESSES, MergedTree
from outrider.mesh.telemetry.metrics import REGISTRY
from outrider.verifier.metrics import Metrics
from outrider.verifier.tracing.step_telemetry import StepTelemetry

from tests.engine.engines import VOCABULARY, MakeEngine, outcome_of, random_drafter, request, requests, run
from tests.engine.masks import ALL, Lax
from tests.toy_model import save_toy


class Late(Lax):
    """Gives the mask of the token before, from the answer's fourth token on."""

    def mask(self, place: int) -> Mask:
        return Mask(self.tokens, place - (len(self.tokens) >= self.prompt + 3), ALL)


class Strange(Lax):
    """Gives the mask of another sequence with the same tokens."""

    def mask(self, place: int) -> Mask:
        return Mask(list(self.tokens), place, ALL)


class Forgotten(Lax):
    """Gives no mask behind guesses."""

    def edit(self, batch: EditBatch, row: int, guesses: MergedTree) -> None:
        batch.allow(row, self.mask(len(self.tokens)))


def test_a_mask_of_its_own_place_is_drawn_under(make_engine: MakeEngine) -> None:
    wanted = requests(6)
    expected = run(make_engine(), wanted)
    guided = [replace(each, grammar=Lax()) for each in wanted]
    said = run(make_engine(drafters=[random_drafter()]), guided)
    assert {name: outcome_of(frames) for name, frames in said.items()} == {
        name: outcome_of(frames) for name, frames in expected.items()
    }


@pytest.mark.parametrize(("kind", "tokens"), [(Late, 3), (Strange, 0), (Forgotten, 0)])
def test_a_mask_that_belongs_elsewhere_ends_its_request_and_no_other(
    make_engine: MakeEngine, kind: type[Lax], tokens: int
) -> None:
    wanted = requests(6)
    alone = {name: outcome_of(frames) for name, frames in run(make_engine(), wanted).items()}
    guilty = replace(request("guilty", answer=20), grammar=kind())
    engine = make_engine(drafters=[random_drafter()], telemetry=StepTelemetry())
    metrics = Metrics(f"places-{kind.__name__}", engine)
    said = run(engine, [*wanted, guilty])
    end = said.pop("guilty")
    assert end[-1].finish is Finish.ERROR
    assert "refused: its mask belongs elsewhere" in (end[-1].error or "")
    assert count(end) >= tokens
    assert {name: outcome_of(frames) for name, frames in said.items()} == alone
    metrics.update()
    labels = {"model": f"places-{kind.__name__}"}
    assert REGISTRY.get_sample_value("outrider_verifier_refused_draws_total", labels) == 1
    assert {name: outcome_of(frames) for name, frames in run(engine, wanted).items()} == alone, "the engine goes on"


def count(frames: list[Output]) -> int:
    return sum(len(frame.tokens) for frame in frames)


@pytest.fixture
def runner(tmp_path: Path) -> Runner:
    save_toy(tmp_path, VOCABULARY)
    return Runner(LlamaModel.load(tmp_path, dtype="float32", determinism="strict"), 16, 8)


def decoding(runner: Runner) -> Sequence:
    """A sequence of 7 tokens whose keys and values are there but for the last."""
    wanted = request("r", prompt=7)
    sequence = Sequence.start(wanted, 1, runner.dice(wanted.sampling))
    sequence.pages = list(range(PageTable(16).total))
    runner.run([Work(sequence, sequence.tokens[:6], None, False)])
    sequence.cached = 6
    return sequence


def tree(depth: int) -> MergedTree:
    made = MergedTree()
    made.append(3, -1, 0.5, depth, 0.5, "d")
    return made


def test_logits_and_dice_of_another_place_are_refused(runner: Runner) -> None:
    sequence = decoding(runner)
    last = sequence.tokens[-1]
    assert len(runner.run([Work(sequence, [last, 3], tree(1), True)])[0].tokens) == 2
    with pytest.raises(Misplaced, match="behind 7 tokens"):
        runner.run([Work(sequence, [last, 3], tree(2), True)])
    with pytest.raises(Misplaced, match="logits or dice"):
        runner.run([Work(sequence, [last + 1], NO_GUESSES, True)])
    work = Work(sequence, [last], NO_GUESSES, True)
    sequence.tokens.append(last)
    with pytest.raises(Misplaced, match="behind 8 tokens"):
        runner.run([work])
