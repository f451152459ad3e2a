"""The level of compiled code: the quickest that the CPU supports, or the one that a variable names."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from outrider.native import levels
from outrider.native.levels import LEVELS, Level, LevelError, supported_levels
from outrider.native.library import library

from requirements.zig import features

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
    assert [level.name for level in supported_levels()] == ["avx512vnni", "avx512", "avx2"]


def test_a_cpu_whose_vectors_of_256_bits_multiply_integers_has_a_level_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("OUTRIDER_NATIVE_LEVEL", raising=False)
    monkeypatch.setattr(levels, "cpu_flags", lambda: LEVELS[-1].needs | {"avx_vnni"})
    assert [level.name for level in supported_levels()] == ["avxvnni", "avx2"]


@pytest.mark.parametrize(
    ("hwcap", "hwcap2", "expected"),
    [
        (0x8FB, 0, ["neon"]),  # Cortex-A72, as qemu's user mode says it, and so on
        (0x119FFB, 0, ["dotprod", "neon"]),  # Neoverse N1
        (0xECFFFFFB, 0x7F877FFF, ["i8mm", "dotprod", "neon"]),  # qemu's "max"
        (0xECFFFFFB, 0x7F875FFF, ["dotprod", "neon"]),  # the same without i8mm
    ],
)
def test_levels_of_arm64_are_those_of_the_words_that_linux_gives_a_process(
    hwcap: int, hwcap2: int, expected: list[str]
) -> None:
    flags = levels.arm_flags({16: hwcap, 26: hwcap2})
    assert [level.name for level in levels.AARCH64 if level.needs <= flags] == expected


@pytest.mark.parametrize(
    ("features", "expected"),
    [
        (["AdvSIMD", "arm.FEAT_DotProd"], ["dotprod", "neon"]),  # M1
        (["AdvSIMD", "arm.FEAT_DotProd", "arm.FEAT_I8MM"], ["i8mm", "dotprod", "neon"]),  # M2
        ([], []),
    ],
)
def test_levels_of_arm64_are_those_of_the_features_that_macos_lists(features: list[str], expected: list[str]) -> None:
    flags = levels.macos_flags(lambda name: int(name.removeprefix("hw.optional.") in features))
    assert [level.name for level in levels.AARCH64 if level.needs <= flags] == expected


@pytest.mark.parametrize("level", [*levels.X86_64, *levels.AARCH64], ids=lambda level: level.name)
def test_zig_s_compiler_uses_all_that_a_level_needs_and_no_flag_of_gcc_is_lost(level: Level) -> None:
    assert all(features(flag) for flag in level.flags)
    linux = {"bmi": "bmi1", "dotprod": "asimddp"}
    named = {linux.get(name, name.replace("-", "")) for flag in level.flags for name in features(flag)}
    assert {name.replace("_", "") for name in level.needs - {"asimd"}} <= named


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
