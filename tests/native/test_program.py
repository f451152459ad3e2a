"""The C++ under the sanitizers for addresses and undefined behaviour, and without a warning."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from outrider.native import compiler
from outrider.native.compiler import LANGUAGE, SOURCE, WARNINGS
from outrider.native.levels import AARCH64, LEVELS, X86_64, Level, supported_levels

PROGRAM = Path(__file__).parents[2] / "native" / "tests"
ANSWERS = PROGRAM / "answers.txt"
"""What the program prints at the level avx2."""
CLANG = shutil.which("clang++")
CROSS, QEMU = shutil.which("aarch64-linux-gnu-g++"), shutil.which("qemu-aarch64-static")
SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer")


@pytest.mark.parametrize("level", LEVELS, ids=lambda level: level.name)
def test_the_sources_compile_without_a_warning_for_every_level(level: Level) -> None:
    flags = [*LANGUAGE, *WARNINGS, *level.flags, '-DOUTRIDER_ABI=""', "-Werror", "-fsyntax-only"]
    units = [str(unit) for unit in sorted(SOURCE.glob("*.cpp"))]
    subprocess.run([*compiler.compiler(), *flags, *units], check=True)


@pytest.mark.parametrize("level", supported_levels()[:1], ids=lambda level: level.name)
def test_every_call_survives_the_sanitizers_and_a_failing_allocator(level: Level, tmp_path: Path) -> None:
    program = tmp_path / "program"
    flags = [*LANGUAGE, *WARNINGS, "-Werror", *level.flags, *SANITIZERS, "-g", '-DOUTRIDER_ABI="tested"']
    units = [str(unit) for unit in sorted((*SOURCE.glob("*.cpp"), *PROGRAM.glob("*.cpp")))]
    subprocess.run([*compiler.compiler(), *flags, f"-I{SOURCE}", *units, "-o", str(program)], check=True)
    environment = os.environ | {"ASAN_OPTIONS": "detect_leaks=1", "UBSAN_OPTIONS": "print_stacktrace=1"}
    completed = subprocess.run([program], env=environment, capture_output=True, text=True, check=False)
    assert completed.returncode == 0, completed.stdout + completed.stderr
    assert completed.stdout.count("no leak") == 8
    if "avx512f" not in level.needs:  # whose sums of floats have another order
        assert _answers(completed.stdout) == _answers(ANSWERS.read_text())


@pytest.mark.slow
@pytest.mark.skipif(not (CROSS and QEMU), reason="needs g++-aarch64-linux-gnu and qemu-user-static")
@pytest.mark.parametrize("level", AARCH64, ids=lambda level: level.name)
def test_answers_of_arm64_are_those_of_x86_64(level: Level, tmp_path: Path) -> None:
    _check_answers([str(CROSS)], [*level.flags, "-static"], [str(QEMU), "-cpu", "max"], tmp_path)


@pytest.mark.slow
@pytest.mark.skipif(LEVELS is not X86_64, reason="needs a machine of x86-64")
def test_the_answers_of_avx_vnni_are_those_of_avx2(tmp_path: Path) -> None:
    flags = ["-march=x86-64-v3", "-D__AVXVNNI__", "-include", str(PROGRAM / "dots.h")]
    _check_answers(compiler.compiler(), flags, [], tmp_path)


@pytest.mark.slow
@pytest.mark.skipif(not (CLANG and LEVELS is X86_64), reason="needs clang++, and a machine of x86-64")
def test_clang_gives_the_answers_of_gcc(tmp_path: Path) -> None:
    command = [str(CLANG)]
    _check_answers(command, [*compiler.roundings(command), "-march=x86-64-v3", "-w"], [], tmp_path)


def _check_answers(cross: list[str], flags: list[str], run: list[str], out: Path) -> None:
    """Compares answers with the recorded, and checks that a row's bits do not depend on the others."""
    units = [str(unit) for unit in sorted((*SOURCE.glob("*.cpp"), *PROGRAM.glob("*.cpp")))]
    flags = [*LANGUAGE, *WARNINGS, "-Werror", *flags, "-Og", f"-I{SOURCE}", '-DOUTRIDER_ABI="tested"']
    subprocess.run([*cross, *flags, *units, "-o", str(out / "program")], check=True)
    command = [*run, str(out / "program"), "no failures"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert _answers(printed) == _answers(ANSWERS.read_text())
    assert printed.count("the same bits") == 7


def _answers(printed: str) -> list[str]:
    return [line for line in printed.splitlines() if line.startswith("answer")]
