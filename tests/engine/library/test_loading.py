"""Settings of a library's engine: the fields and bounds of a verifier's."""

from __future__ import annotations

import typing
from dataclasses import replace
from typing import Any

import pytest
from msgspec import Meta
from outrider.engine import SettingsError
from outrider.engine.library.loading import BOUNDS, engine_settings
from outrider.engine.models import pocket
from outrider.engine.models.operators.graphs import ROWS
from outrider.engine.settings import EngineSettings
from outrider.verifier.settings import VerifierSettings


def test_settings_have_the_bounds_of_a_verifier() -> None:
    hints = typing.get_type_hints(VerifierSettings, include_extras=True)
    metas = {name: meta for name, hint in hints.items() for meta in typing.get_args(hint) if isinstance(meta, Meta)}
    own = EngineSettings.__dataclass_fields__
    assert {name: (meta.ge, meta.le) for name, meta in metas.items() if meta.ge is not None and name in own} == BOUNDS
    assert [name for name, meta in metas.items() if meta.gt is not None and name in own] == ["priority_aging_s"]


def test_settings_have_the_defaults_of_a_verifier() -> None:
    ours, theirs = EngineSettings(), VerifierSettings().engine()
    assert theirs == replace(ours, drafters=list(ours.drafters))


@pytest.mark.parametrize("device", ["cuda", "cuda:1"])
def test_a_gpu_has_larger_steps_than_a_cpu_where_settings_leave_that_to_it(device: str) -> None:
    made = engine_settings("a", None, [], {"device": device, "max_guesses": 0, "prefill_rows": 7})
    assert (made.max_running, made.max_rows, made.prefill_rows, made.max_guesses) == (128, 640, 7, 0)
    assert made.max_rows == ROWS[-1], "the largest step runs as a CUDA graph"
    cpu = engine_settings("a", None, [], {"max_rows": 400})
    assert (cpu.max_running, cpu.max_rows, cpu.prefill_rows, cpu.max_guesses) == (64, 400, 256, 64)


def test_a_draft_model_is_a_drafter_beside_the_others() -> None:
    made = engine_settings("a", "pocket", "auto", {"options": {"ngram": {"longest": 3}, "model": {"children": 2}}})
    assert made.drafters == ["auto", "model"]
    assert made.options == {"ngram": {"longest": 3}, "model": {"children": 2, "model": "pocket"}}
    assert engine_settings("a", None, [], {}) == EngineSettings(model="a", drafters=[])


def test_a_head_as_draft_is_read_by_its_drafter() -> None:
    heads = str(pocket.directory("medusa"))
    made = engine_settings("a", heads, "auto", {})
    assert (made.drafters, made.options) == (["auto", "medusa"], {"medusa": {"model": heads}})
    with pytest.raises(SettingsError, match=r"^draft: there is no model in /no/where"):
        engine_settings("a", "/no/where", "auto", {})


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"pages": -1}, "pages must be at least 0, not -1"),
        ({"page_size": 257}, "page_size must be from 1 to 256, not 257"),
        ({"page_size": 8.0}, "page_size must be an integer, not 8.0"),
        ({"pages": True}, "pages must be an integer, not True"),
        ({"cuda_graphs": 1}, "cuda_graphs must be True or False, not 1"),
        ({"memory_fraction": "a"}, "memory_fraction must be a number, not 'a'"),
        ({"priority_aging_s": 0}, "priority_aging_s must be above 0, not 0"),
        ({"options": []}, "options must be a dictionary, not []"),
        ({"dtype": 16}, "dtype must be a text, not 16"),
    ],
)
def test_a_wrong_setting_is_refused_with_what_it_may_be(asked: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError) as caught:
        engine_settings("pocket", None, "auto", asked)
    assert str(caught.value) == message


def test_an_unknown_setting_is_refused_with_those_that_exist() -> None:
    with pytest.raises(
        TypeError, match=r"LLM has no setting tensor_parallel_size; there are: draft, .*, max_running, "
    ):
        engine_settings("pocket", None, "auto", {"tensor_parallel_size": 2})
