"""Heads trained for a target: the shipped one, whose answers are short and soon loop."""

from __future__ import annotations

import sysconfig
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from outrider.engine.library.loading import engine_settings
from outrider.engine.models import pocket
from outrider.engine.settings import EngineSettings
from outrider.engine.store import integrity
from outrider.engine.target import Target
from outrider.engine.text import Tokenizer
from outrider.training.drafters import measure, prompts
from outrider.training.drafters.__main__ import main
from outrider.training.drafters.answers import Asking, record, recorded_layers
from outrider.training.drafters.draft_learner import DraftLearner, check_draft
from outrider.training.drafters.eagle_start import Moments
from outrider.training.drafters.errors import TrainingError
from outrider.training.drafters.fit import Plan, Trainer
from outrider.training.drafters.learners import Learner, Read, Size, Told
from outrider.training.drafters.losses import Weights
from outrider.training.drafters.medusa_learner import MedusaLearner
from outrider.training.drafters.shelf import Shelf
from outrider.training.drafters.teacher import Teacher, frequent
from outrider.training.drafters.train import KINDS
from safetensors.torch import load_file

ANSWER = 40
SETTINGS = engine_settings("pocket", None, [], {"max_running": 4, "pages": 64})
FAST = Plan(epochs=40, batch=2, rate=3e-3, weights=Weights(cross_entropy=1.0, variation=0.0))


def prompts_file(directory: Path) -> Path:
    """Beginnings of files of Python's library."""
    paths = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))[:12]
    path = directory / "prompts.txt"
    path.write_text("\n\n".join(" ".join(each.read_text()[:120].split()) for each in paths))
    return path


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> list[prompts.Prompt]:
    return prompts.load(prompts_file(tmp_path_factory.mktemp("prompts")), 0, 8)


def shelf_of(target: Target, directory: Path) -> Shelf:
    config = target.runner.model.config
    return Shelf(directory, {"target": "pocket"}, len(recorded_layers(config.layers)), config.hidden_size, 2e7)


@pytest.fixture(scope="module")
def recorded(asked: list[prompts.Prompt], tmp_path_factory: pytest.TempPathFactory) -> tuple[Target, Shelf]:
    """The target, which has answered, and its answers, greedy ones."""
    target = Target.load(SETTINGS)
    shelf = shelf_of(target, tmp_path_factory.mktemp("shelf"))
    record(target, asked, shelf, Asking(10_000, ANSWER, greedy=1.0), lambda tokens: None)
    return target, shelf


def learner_of(kind: str, target: Target, shelf: Shelf, blocks: int) -> Learner:
    model = target.runner.model
    counts = sum(torch.bincount(shelf.ids(entry), minlength=model.config.vocab_size) for entry in shelf.entries)
    assert isinstance(counts, torch.Tensor)
    teacher = Teacher(model, frequent(counts, 256), model.config.vocab_size - 1)
    layers = recorded_layers(model.config.layers)[:-1]
    return KINDS[kind](model.config, teacher, layers, Size(guesses=3, layers=blocks, inner=128, rank=16), 0)


def trainer_of(
    kind: str, recorded: tuple[Target, Shelf], plan: Plan, directory: Path, blocks: int = 1
) -> tuple[Learner, Trainer]:
    target, shelf = recorded
    learner = learner_of(kind, target, shelf, blocks)
    entries = [entry for entry in shelf.entries if not entry.held_out]
    return learner, Trainer(learner, shelf, entries, plan, directory, torch.device("cpu"))


def test_recorded_states_are_those_that_decided_the_answers(recorded: tuple[Target, Shelf]) -> None:
    target, shelf = recorded
    assert len(shelf.entries) == 8
    for entry in shelf.entries:
        ids, last = shelf.ids(entry), shelf.states(entry)[:, -1].contiguous()
        said = target.runner.model.logits(last[entry.prompt - 1 :]).argmax(-1)
        assert (said == ids[entry.prompt :]).float().mean() > 0.9  # states are kept in bfloat16
        assert entry.length - entry.prompt == ANSWER - 1  # the last token ends the sequence before drafters see it


def test_asking_goes_on_where_it_was_broken_off(
    recorded: tuple[Target, Shelf], asked: list[prompts.Prompt], tmp_path: Path
) -> None:
    _, whole = recorded
    record(target := Target.load(SETTINGS), asked[:3], shelf_of(target, tmp_path), Asking(10_000, ANSWER, 1.0), print)
    again = Target.load(SETTINGS)
    shelf = shelf_of(again, tmp_path)
    assert len(shelf.entries) == 3
    record(again, asked, shelf, Asking(10_000, ANSWER, greedy=1.0), lambda tokens: None)
    assert [entry.number for entry in shelf.entries] == list(range(8))
    for entry, other in zip(shelf.entries, whole.entries, strict=True):
        assert torch.equal(shelf.ids(entry), whole.ids(other))
        assert torch.equal(shelf.states(entry), whole.states(other))


def test_an_answer_for_which_there_is_no_room_ends_asking(asked: list[prompts.Prompt], tmp_path: Path) -> None:
    target = Target.load(SETTINGS)
    config = target.runner.model.config
    layers = len(recorded_layers(config.layers))
    small = Shelf(tmp_path, {}, layers, config.hidden_size, 1030 * (2 * layers * config.hidden_size + 4))
    many = asked * 8
    record(target, many, small, Asking(100_000, ANSWER), lambda tokens: None)
    assert 0 < len(small.entries) < len(many)
    assert small.room < 200


@pytest.mark.parametrize("kind", list(KINDS))
def test_a_run_that_was_broken_off_ends_with_the_same_bytes(
    kind: str, recorded: tuple[Target, Shelf], tmp_path: Path
) -> None:
    plan = replace(FAST, epochs=2, save_s=0.0)
    whole, trainer = trainer_of(kind, recorded, plan, tmp_path / "whole")
    trainer.run(lambda *said: None)

    def stop(step: int, *said: float) -> None:
        if step == 5:
            raise KeyboardInterrupt

    _, broken = trainer_of(kind, recorded, plan, tmp_path / "halves")
    with pytest.raises(KeyboardInterrupt):
        broken.run(stop)
    halves, again = trainer_of(kind, recorded, plan, tmp_path / "halves")
    again.resume()
    assert again.step == 4
    again.run(lambda *said: None)
    whole.write(tmp_path / "a")
    halves.write(tmp_path / "b")
    for path in (tmp_path / "a").iterdir():
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes()


@pytest.mark.parametrize("layers", [1, 2])
def test_an_eagle_head_begins_with_maps_that_guess(layers: int, recorded: tuple[Target, Shelf], tmp_path: Path) -> None:
    _, shelf = recorded
    learnt = [entry for entry in shelf.entries if not entry.held_out]
    heads, told = [], list[tuple[int, int]]()
    for name in ("a", "b"):
        learner, trainer = trainer_of("eagle3", recorded, FAST, tmp_path / name, layers)
        before = trainer.quality(learnt)
        trainer.start(lambda done, passes: told.append((done, passes)))
        after = trainer.quality(learnt)
        assert before.length < 1.2
        assert after.length > 1.8
        learner.write(tmp_path / name / "head")
        heads.append((tmp_path / name / "head" / "model.safetensors").read_bytes())
    assert heads[0] == heads[1]
    assert told[-1][0] == told[-1][1]


def test_maps_are_solved_from_a_part_of_many_answers(recorded: tuple[Target, Shelf], tmp_path: Path) -> None:
    read = list[int]()

    class Counting(MedusaLearner):
        def start(self, sequences: Read, watch: Told) -> None:
            read.extend(len(sequence.ids) for sequence in sequences())

    target, shelf = recorded
    model = target.runner.model
    teacher = Teacher(model, torch.arange(256), model.config.vocab_size - 1)
    learner = Counting(model.config, teacher, recorded_layers(model.config.layers)[:-1], Size(guesses=2, inner=16), 0)
    entries = [entry for entry in shelf.entries if not entry.held_out]
    for copies in (1, 100_000 // sum(entry.length for entry in entries) + 2):
        trainer = Trainer(learner, shelf, entries * copies, FAST, tmp_path, torch.device("cpu"))
        trainer.start(lambda *said: None)
        lengths = [entry.length for entry in entries * copies]
        assert lengths[: len(read)] == read
        assert len(read) == len(entries) if copies == 1 else 100_000 <= sum(read) < 100_000 + max(lengths)
        read.clear()


def test_the_map_of_least_squares_is_found() -> None:
    dice = torch.Generator().manual_seed(5)
    inputs, wanted = torch.randn(400, 6, generator=dice), torch.randn(6, 3, generator=dice)
    inputs[:, 0] *= 1000.0  # the damping is a share of each input's square
    wanted[0] /= 1000.0
    moments = Moments(6, 3, torch.device("cpu"))
    for start in range(0, 400, 100):
        part = inputs[start : start + 100]
        moments.add(part, part @ wanted)
    torch.testing.assert_close(inputs @ moments.solve(), inputs @ wanted, rtol=0.02, atol=0.05)


@pytest.mark.parametrize("kind", list(KINDS))
def test_a_head_guesses_in_the_engine_what_it_learnt_by_heart(
    kind: str, recorded: tuple[Target, Shelf], asked: list[prompts.Prompt], tmp_path: Path
) -> None:
    target, shelf = recorded
    learner, trainer = trainer_of(kind, recorded, FAST, tmp_path / "training")
    learnt = [entry for entry in shelf.entries if not entry.held_out]
    before = trainer.quality(learnt)
    trainer.run(lambda *said: None)
    after = trainer.quality(learnt)
    assert before.length < 1.2
    assert after.length > 2.0
    learner.write(tmp_path / "head")
    again = Target.over(target.runner.model, target.tokenizer, target.directory, SETTINGS)
    wanted = [prompt for prompt in asked if not prompt.held_out]
    settings = measure.alone(SETTINGS, str(tmp_path / "head"))
    figures = measure.measure(again, settings, wanted, ANSWER, lambda done, whole: None)
    greedy = next(each for each in figures if not each.temperature)
    assert greedy.length == pytest.approx(after.length, rel=0.15)


def test_a_draft_model_guesses_in_the_engine_what_it_learnt_by_heart(
    recorded: tuple[Target, Shelf], asked: list[prompts.Prompt], tmp_path: Path
) -> None:
    target, shelf = recorded
    vocabulary = target.runner.model.config.vocab_size
    teacher = Teacher(target.runner.model, torch.arange(vocabulary), 0)
    learner = DraftLearner(pocket.directory("draft"), teacher, 5)
    learnt = [entry for entry in shelf.entries if not entry.held_out]
    trainer = Trainer(learner, shelf, learnt, FAST, tmp_path / "training", torch.device("cpu"))
    before = trainer.quality(learnt)
    trainer.run(lambda *said: None)
    after = trainer.quality(learnt)
    assert after.length > before.length + 0.5
    learner.write(tmp_path / "draft")
    wanted = [prompt for prompt in asked if not prompt.held_out]
    lengths = []
    for model in (pocket.directory("draft"), tmp_path / "draft"):
        again = Target.over(target.runner.model, target.tokenizer, target.directory, SETTINGS)
        settings = measure.alone(SETTINGS, str(model), {"children": 1, "rounds": 5, "quantization": "none"})
        figures = measure.measure(again, settings, wanted, ANSWER, lambda done, whole: None)
        lengths.append(next(each.length for each in figures if not each.temperature))
    assert lengths[1] > lengths[0] + 0.5
    assert lengths[1] < 1.15 * after.length, "chains end where a further round does not pay"


def test_a_draft_model_of_another_vocabulary_is_refused() -> None:
    directory = pocket.directory("draft")
    vocabulary, size = Tokenizer.load(directory).fingerprint, 4096
    check_draft(directory, vocabulary, size)
    for other in (("another", size), (vocabulary, 5000)):
        with pytest.raises(TrainingError, match=r"another vocabulary \(4,096 ids\) than the target"):
            check_draft(directory, *other)


def test_a_whole_run_writes_a_head_a_card_and_a_manifest(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, file = tmp_path / "out", prompts_file(tmp_path)
    options = ["--answer-tokens", "16", "--disk-gb", "0.02", "--vocabulary", "128", "--guesses", "2", "--inner", "64"]
    options += ["--epochs", "1", "--measured", "1", "--measured-tokens", "12", "--tokens", "100"]
    given = ["train", "--target", "pocket", "--out", str(out), "--prompts", str(file), *options]
    main(given)
    card = (out / "README.md").read_text()
    said = capsys.readouterr()
    assert said.out.strip().endswith(card.strip())  # behind log lines, where earlier tests set those up
    assert [line for line in ("answers: 0 of 100", "start: 6 of 6", "training: 4 of 4") if line not in said.err] == []
    assert "| text | 0 | 1 |" in card
    assert len(load_file(out / "model.safetensors")["d2t"]) == 128
    assert integrity.verify(out)
    with pytest.raises(SystemExit):
        main(given)
    assert "--resume goes on with it" in capsys.readouterr().err
    main([*given, "--resume"])


def test_steps_that_a_slow_start_cut_are_taken_back(recorded: tuple[Target, Shelf], tmp_path: Path) -> None:
    plan = replace(FAST, epochs=1000, deadline=time.monotonic() + 1000.0)
    _, trainer = trainer_of("medusa", recorded, plan, tmp_path)
    planned = trainer.steps
    trainer.fit_deadline(100.0)
    assert trainer.steps < 11
    trainer.fit_deadline(1e-6)
    assert trainer.steps == planned


def test_training_keeps_to_its_minutes(recorded: tuple[Target, Shelf], tmp_path: Path) -> None:
    plan = replace(FAST, epochs=100_000, deadline=time.monotonic() + 3.0)
    _, trainer = trainer_of("medusa", recorded, plan, tmp_path)
    trainer.run(lambda *said: None)
    assert trainer.step == trainer.steps < 100_000


def test_a_run_that_a_deadline_ended_goes_on(recorded: tuple[Target, Shelf], tmp_path: Path) -> None:
    _, short = trainer_of("medusa", recorded, replace(FAST, deadline=time.monotonic()), tmp_path)
    short.run(lambda *said: None)
    _, longer = trainer_of("medusa", recorded, FAST, tmp_path)
    longer.resume()
    assert short.step == short.steps == longer.step < longer.steps
    longer.run(lambda *said: None)
    assert longer.step == longer.steps


@pytest.mark.parametrize(
    ("text", "options", "sentence"),
    [
        ("", [], "holds no prompts"),
        ('{"kind": "code"}', [], "line 1, is no prompt"),
        ('{"text": "a", "kind": "code"}', [], "there is one prompt of kind code"),
        ("a\n\nb", ["--kind", "eagle2"], "there is no kind eagle2; drafters are of kind dspark, eagle3, medusa, draft"),
        ("a\n\nb", ["--kind", "draft"], "--kind draft needs --draft"),
        ("a\n\nb", ["--draft", "pocket"], "other kinds have none"),
        ("a\n\nb", ["--kind", "draft", "--draft", "/nowhere"], "there is no model in /nowhere"),
        (
            "a\n\nb",
            ["--kind", "draft", "--draft", str(pocket.directory("medusa"))],
            "no directory with model.safetensors",
        ),
        ("a\n\nb", ["--disk-gb", "0.0001"], "it must be room for 1024 or more"),
    ],
)
def test_a_wrong_input_gets_one_sentence(
    text: str, options: list[str], sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "prompts").write_text(text)
    given = ["--target", "pocket", "--out", str(tmp_path / "out"), "--prompts", str(tmp_path / "prompts"), *options]
    with pytest.raises(SystemExit) as ended:
        main(["train", *given])
    assert ended.value.code == 1
    said = capsys.readouterr().err.strip().splitlines()[-1]
    assert said.startswith("outrider: ")
    assert sentence in said


def test_a_drafter_that_is_none_gets_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for drafter, sentence in ((str(tmp_path), "config.json"), ("nobody", "no 'nobody' among outrider.drafters")):
        with pytest.raises(SystemExit):
            main(["eval", "--target", "pocket", "--drafter", drafter, "--measured", "1"])
        assert sentence in capsys.readouterr().err


def test_any_drafter_can_be_measured(asked: list[prompts.Prompt], tmp_path: Path) -> None:
    medusa = str(pocket.directory("medusa"))
    assert measure.alone(SETTINGS, medusa).options == {"medusa": {"model": medusa, "children": 1}}
    draft = str(pocket.directory("draft"))
    assert measure.alone(SETTINGS, draft).options == {"model": {"model": draft}}
    settings: EngineSettings = measure.alone(SETTINGS, "ngram", {"most": 4})
    late = measure.measure(Target.load(SETTINGS), settings, asked[:2], ANSWER, lambda done, whole: None, deadline=0.0)
    assert [each.answers for each in late] == [1]
    figures = measure.measure(Target.load(SETTINGS), settings, asked[:2], ANSWER, lambda done, whole: None)
    assert {each.temperature for each in figures} == {0.0, 1.0}
    assert all(each.tokens == each.steps + sum(k * n for k, n in each.runs.items()) for each in figures)


def test_made_prompts_are_the_same_each_time_and_none_of_a_held_out_file_is_learnt_from() -> None:
    made = prompts.load(None, 3, 600)
    assert made == prompts.load(None, 3, 600)
    assert made != prompts.load(None, 4, 600)
    assert {prompt.kind for prompt in made} == {"code", "chat"}
    held = {(prompt.kind, prompt.source) for prompt in made if prompt.held_out}
    assert len(held) > 5
    assert not [prompt for prompt in made if not prompt.held_out and (prompt.kind, prompt.source) in held]
