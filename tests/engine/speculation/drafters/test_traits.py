"""What a drafter states of itself is checked before it serves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from outrider.engine.models.config import ModelConfig
from outrider.engine.speculation import DrafterContext, DrafterError, Traits
from outrider.engine.speculation.drafters.drafter import make_drafter, traits_of
from outrider.engine.speculation.drafters.medusa_drafter import MedusaDrafter
from outrider.engine.speculation.drafters.ngram_drafter import NgramDrafter

from tests.engine.drafters import Watcher
from tests.toy_model import save_toy


@pytest.fixture
def config(tmp_path: Path) -> ModelConfig:
    return ModelConfig.load(save_toy(tmp_path, 50))


def made(context: DrafterContext, layers: tuple[int, ...], **traits: Any) -> Watcher:
    def plugin(_: DrafterContext) -> Watcher:
        drafter = Watcher(50, 1, layers)
        drafter.traits = Traits(layers=layers, **traits)
        return drafter

    return make_drafter(plugin, "mine", context)


def test_a_drafter_whose_states_travel_serves_in_another_process(config: ModelConfig) -> None:
    drafter = made(DrafterContext("v", 50, 256, config=config), (0, 3), travels=True)
    assert drafter.traits.token_bytes(config.hidden_size) == 2 * 2 * 32
    assert made(DrafterContext("v", 50, 256), ()).traits.token_bytes(32) == 0


@pytest.mark.parametrize(
    ("layers", "known", "travels", "why"),
    [
        ((0, 1), True, False, "the mine drafter's states may not cross the network: it runs in the verifier only"),
        ((0, 1), False, True, "needs states of a target, whose config.json is not there"),
        ((1, 4), True, True, r"layers are \[1, 4\]; they must ascend from 0 on, up to 3"),
        ((-1, 2), True, True, "must ascend"),
        ((2, 1), True, True, "must ascend"),
        ((1, 1), True, True, "must ascend"),
    ],
)
def test_states_that_cannot_come_are_refused(
    config: ModelConfig, layers: tuple[int, ...], known: bool, travels: bool, why: str
) -> None:
    with pytest.raises(DrafterError, match=why):
        made(DrafterContext("v", 50, 256, config=config if known else None), layers, travels=travels)


def test_what_is_no_drafter_and_what_needs_the_target_elsewhere_are_refused() -> None:
    with pytest.raises(DrafterError, match="mine drafter"):
        make_drafter(lambda context: {}, "mine", DrafterContext("v", 50, 256))
    with pytest.raises(DrafterError, match="medusa drafter"):
        make_drafter(MedusaDrafter, "medusa", DrafterContext("v", 50, 256))


def test_a_plug_in_states_what_holds_before_there_is_a_drafter() -> None:
    assert traits_of(NgramDrafter).auto
    assert traits_of(MedusaDrafter).target
    assert traits_of(lambda context: None) == Traits()
