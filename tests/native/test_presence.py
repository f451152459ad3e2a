"""When libraries are compiled, and the notice where there is none."""

from __future__ import annotations

import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from outrider.native import compiler, levels, presence
from outrider.native.compiler import ensure, ensure_all, path_of
from outrider.native.levels import Level, supported_levels

ANY = Level("any", (), frozenset())


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Sources of a tiny library in place of Outrider's, not yet compiled."""
    folder = tmp_path / "source"
    folder.mkdir()
    (folder / "one.cpp").write_text("int one() { return 1; }")
    monkeypatch.setattr(compiler, "SOURCE", folder)
    monkeypatch.setattr(compiler, "LIBRARIES", tmp_path / "libraries")
    monkeypatch.delenv("CXX", raising=False)
    return folder


def _without_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")


def test_sources_that_changed_are_compiled_again_in_place_of_what_they_were(sources: Path) -> None:
    first = ensure(ANY)
    assert ensure(ANY) == first == path_of(ANY)
    (sources / "one.cpp").write_text("int one() { return 2; }")
    second = ensure(ANY)
    assert second != first
    assert list(first.parent.glob("*.so")) == [second]
    assert second.stat().st_mode & 0o777 == 0o755  # for processes of other users too


def test_of_many_that_need_a_library_one_compiles_it(
    sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted, runs = tmp_path / "c++", tmp_path / "runs"
    counted.write_text(f'#!/bin/sh\n[ "$1" = --version ] || echo run >> {runs}\nexec {compiler.compiler()[0]} "$@"\n')
    counted.chmod(0o755)
    monkeypatch.setenv("CXX", str(counted))
    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(ensure, [ANY] * 4)) == {path_of(ANY)}
    assert runs.read_text().split() == ["run"]


def test_without_a_compiler_all_levels_are_left_out_and_each_says_why(
    sources: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _without_compiler(monkeypatch)
    libraries, failures = ensure_all()
    assert not libraries
    assert len(failures) == len(levels.LEVELS)
    assert all("no C++ compiler" in failure for failure in failures)


def test_where_all_is_compiled_there_is_nothing_to_tell() -> None:
    ensure(supported_levels()[0])
    assert presence.notice() is None


def test_a_source_tree_says_that_it_will_compile_and_what_is_lost_if_it_cannot(
    sources: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert presence.in_checkout()
    assert "the first process that decodes compiles it" in str(presence.notice())
    _without_compiler(monkeypatch)
    notice = str(presence.notice())
    assert notice.startswith("No compiled code: ")
    assert "half the speed" in notice
    assert notice.endswith("Install g++ and reinstall.")


def test_a_wheel_of_python_alone_says_what_is_lost(sources: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(presence, "in_checkout", lambda: False)
    assert "the wheel was built without a C++ compiler" in str(presence.notice())


def test_other_machines_are_told_what_is_lost_and_not_to_install_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OUTRIDER_NATIVE_LEVEL", raising=False)
    monkeypatch.setattr(levels, "cpu_flags", lambda: frozenset(["sse2"]))
    notice = str(presence.notice())
    assert "no AVX2" in notice
    assert "Install" not in notice


def test_neither_the_notice_nor_the_compiler_needs_more_than_python(tmp_path: Path) -> None:
    package = tmp_path / "outrider" / "native"
    shutil.copytree(compiler.SOURCE.parent, package, ignore=shutil.ignore_patterns("libraries"))
    lines = ("import sys", f"sys.path.insert(0, {str(tmp_path)!r})", "from outrider.native import presence")
    code = "\n".join((*lines, "print(presence.notice())"))
    completed = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True)
    assert completed.stdout.startswith("No compiled code: the wheel was built without a C++ compiler")
