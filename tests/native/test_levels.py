"""The level of compiled code: the quickest that the CPU supports, or the one that a variable names."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

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
    assert [level.name for level in supported_levels()] == ["avx512vnni", "avx512", "avx2"]


def test_a_cpu_whose_vectors_of_256_bits_multiply_integers_has_a_level_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("OUTRIDER_NATIVE_LEVEL", raising=False)
    monkeypatch.setattr(levels, "cpu_flags", lambda: LEVELS[-1].needs | {"avx_vnni"})
    assert [level.name for level in supported_levels()] == ["avxvnni", "avx2"]


@pytest.mark.parametrize(
    ("features", "expected"),
    [
        ("fp asimd evtstrm aes crc32 cpuid", ["neon"]),
        ("fp asimd evtstrm aes crc32 atomics fphp asimdhp cpuid asimdrdm lrcpc dcpop asimddp", ["dotprod", "neon"]),
        ("fp asimd atomics asimddp sve i8mm bf16", ["i8mm", "dotprod", "neon"]),
    ],
)
def test_levels_of_arm64_are_those_of_the_features_that_linux_lists(
    features: str, expected: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text(f"processor\t: 0\nBogoMIPS\t: 243.75\nFeatures\t: {features}\nCPU implementer\t: 0x41\n\n")
    monkeypatch.delenv("OUTRIDER_NATIVE_LEVEL", raising=False)
    monkeypatch.setattr(levels, "LEVELS", levels.AARCH64)
    monkeypatch.setattr(levels, "Path", lambda _: cpuinfo)
    assert [level.name for level in supported_levels()] == expected


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
