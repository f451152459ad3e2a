"""The level of compiled code: the quickest that the CPU supports, or the one that a variable names."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from outrider.native import levels
from outrider.native.levels import LEVELS, Level, LevelError, supported_levels
from outrider.native.library import library

FLAGS = LEVELS[2].needs
"""Of a CPU without instructions that multiply bfloat16."""


@pytest.fixture
def loaded_anew() -> Iterator[None]:
    library.cache_clear()
    yield
    library.cache_clear()


@pytest.mark.usefixtures("loaded_anew")
@pytest.mark.parametrize("level", supported_levels(), ids=lambda level: level.name)
def test_the_library_is_of_the_level_that_the_variable_names(level: Level, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTRIDER_NATIVE_LEVEL", level.name)
    assert library().level == level.name
    assert supported_levels() == (level,)


def test_without_the_variable_all_levels_of_the_cpu_are_there_the_quickest_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("OUTRIDER_NATIVE_LEVEL", raising=False)
    monkeypatch.setattr(levels, "cpu_flags", lambda: FLAGS)
    assert supported_levels() == LEVELS[2:]


@pytest.mark.parametrize(
    ("name", "flags", "message"),
    [
        ("avx9", FLAGS, "is 'avx9'; here it must be one of avx512vnni, avx512, avx2"),
        ("", FLAGS, "is ''; here it must be one of avx512vnni, avx512, avx2"),
        ("amx", FLAGS, "is 'amx', which this CPU does not support; here it must be one of avx512vnni, avx512, avx2"),
        ("avx2", frozenset(), "is 'avx2', which this CPU does not support; here it must be unset"),
    ],
)
def test_a_level_that_cannot_run_is_refused_with_those_that_can(
    name: str, flags: frozenset[str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUTRIDER_NATIVE_LEVEL", name)
    monkeypatch.setattr(levels, "cpu_flags", lambda: flags)
    with pytest.raises(LevelError) as caught:
        supported_levels()
    assert str(caught.value) == f"OUTRIDER_NATIVE_LEVEL {message}"
