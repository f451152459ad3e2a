"""A head that guesses no better than chance is reported once; one that reads the layers it was trained on is not."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from outrider.engine.models.llama import LlamaModel
from outrider.engine.sampling import Sampling
from outrider.engine.speculation import DrafterContext, Opening
from outrider.engine.speculation.drafters.trained.alarm import Alarm
from outrider.engine.speculation.drafters.trained.head_drafter import HeadDrafter

from tests.engine.speculation.heads.published import TARGET, VOCABULARY, eagle3
from tests.toy_model import save_toy

CHANCE = "a head guesses no better than chance"


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if record.levelname == "WARNING"]


def test_a_head_that_reads_other_layers_is_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The text is what the head guesses from its own layers; the same head on the layers behind them is lost."""
    caplog.set_level("INFO")
    target = LlamaModel.load(save_toy(tmp_path / "toy", VOCABULARY), dtype="float32")
    directory, dice = eagle3().save(tmp_path / "head"), torch.Generator().manual_seed(3)
    heads = []
    for layers in ([0, 1, 2], [1, 2, 3]):
        options = {"children": 1, "rounds": 1, "layers": layers, "least_value": 0.0}
        context = DrafterContext("v", VOCABULARY, 999, directory, options=options, target=target, config=target.config)
        heads.append(HeadDrafter(context))
    own, others = heads
    texts = {number: torch.randint(VOCABULARY, (2,), generator=dice).tolist() for number in range(32)}
    for head in heads:
        for number, text in texts.items():
            head.open(number, Opening(list(text), Sampling(0.0), 63))
    for place in range(9):
        for number in texts:
            states = torch.randn(1, 4, TARGET, generator=dice)
            own.see(number, place, states[:, :3])
            others.see(number, place, states[:, 1:])
        trees = dict(own.draft())
        assert len(others.draft()) == len(texts)
        for number, text in texts.items():
            for head in heads:
                head.commit(number, len(text), trees[number].tokens)
            text += trees[number].tokens
    assert (own.alarm.raised, others.alarm.raised) == (False, True)
    [warning] = warnings(caplog)
    assert warning.startswith(CHANCE)
    assert f"{directory} (eagle3, as its authors lay it out)" in warning
    lines = [record.message for record in caplog.records if record.message.startswith("head loaded")]
    assert ["layers=[0, 1, 2]" in line for line in lines] == [True, False]
    assert ["layers=[1, 2, 3]" in line for line in lines] == [False, True]


@pytest.mark.parametrize(("right", "raised"), [(0, True), (25, True), (26, False), (200, False)])
def test_the_alarm_counts_windows_of_256_and_is_raised_once(
    caplog: pytest.LogCaptureFixture, right: int, raised: bool
) -> None:
    alarm = Alarm("a head")
    for _ in range(3):
        for guess in range(256):
            alarm.count(guess < right)
    assert len(warnings(caplog)) == raised
    assert alarm.raised == raised


def test_a_head_that_guesses_right_again_is_no_longer_lost(caplog: pytest.LogCaptureFixture) -> None:
    alarm = Alarm("a head")
    seen = []
    for share in (200, 25, 26):
        for guess in range(256):
            alarm.count(guess < share)
        seen.append(alarm.lost)
    assert seen == [False, True, False]
