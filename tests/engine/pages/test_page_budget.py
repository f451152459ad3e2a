"""How many pages an engine has, by its settings and the free memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from outrider.engine.errors import SettingsError
from outrider.engine.models.llama import LlamaModel
from outrider.engine.pages.page_budget import CPU_ENOUGH, page_count
from outrider.engine.settings import EngineSettings

from tests.toy_model import save_toy

CONTEXT = 1024
MUCH = 1 << 50


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> LlamaModel:
    """A model of 1024 tokens of context, whose tokens take 256 bytes."""
    return LlamaModel.load(save_toy(tmp_path_factory.mktemp("toy"), 50, context=CONTEXT), dtype="float32")


def count(model: LlamaModel, free: int, **settings: Any) -> int:
    return page_count(model, EngineSettings(**settings), free)


def test_pages_that_are_set_are_taken_as_they_are(model: LlamaModel) -> None:
    assert count(model, MUCH, pages=7) == 7
    assert count(model, 7 * 16 * 256, pages=7) == 7


def test_pages_take_their_share_of_what_is_free(model: LlamaModel) -> None:
    assert model.token_bytes() == 256
    assert count(model, 1 << 22, memory_fraction=0.5) == (1 << 21) // (256 * 16)
    assert count(model, 1 << 22, memory_fraction=0.5, memory_sharers=2) == (1 << 20) // (256 * 16)
    assert count(model, 1 << 22) == (1 << 20) // (256 * 16)


def test_there_are_no_more_pages_than_all_running_sequences_can_use(model: LlamaModel) -> None:
    assert count(model, MUCH, max_running=3) == 3 * CONTEXT // 16
    assert count(model, MUCH, max_running=3, page_size=48) == 3 * 22


def test_by_default_a_cpu_s_pages_take_few_gigabytes(model: LlamaModel) -> None:
    many = {"max_running": 1 << 20, "max_rows": 1 << 21}
    assert count(model, MUCH, **many) == CPU_ENOUGH // (256 * 16)
    assert count(model, MUCH, **many, memory_sharers=2) == CPU_ENOUGH // (256 * 16)
    assert count(model, MUCH, **many, memory_fraction=1.0) > CPU_ENOUGH // (256 * 16)


def test_by_default_a_cpu_s_pages_hold_a_long_context_once(model: LlamaModel) -> None:
    assert page_count(model, EngineSettings(), MUCH, enough=1000) == CONTEXT // 16 + 1


def test_too_many_pages_are_refused_with_what_fits(model: LlamaModel, tmp_path: Path) -> None:
    with pytest.raises(SettingsError) as refused:
        count(model, 4 << 20, pages=2000)
    assert str(refused.value) == (
        "pages = 2000 of 16 tokens take 7.8 MiB, and 4.0 MiB are free on cpu: at most pages = 1024 fit, or "
        "pages = 3276 with kv_dtype = int8"
    )


def test_a_share_too_small_for_the_context_serves_less_and_one_for_nothing_is_refused(model: LlamaModel) -> None:
    assert count(model, 1 << 20, memory_fraction=0.125) == 32
    with pytest.raises(SettingsError) as refused:
        count(model, 1 << 16, memory_fraction=0.25)
    assert str(refused.value) == (
        "the model's context of 1024 tokens takes 0.2 MiB of KV pages, but 0.0 MiB of the 0.1 MiB that are free on cpu "
        "are for pages: they hold 64 tokens, or 192 tokens with kv_dtype = int8; memory_fraction = 1 would hold 256"
    )
