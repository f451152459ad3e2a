"""The header, the compiled library and Python agree on their interface."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from outrider.native import compiler
from outrider.native.compiler import HEADER, abi
from outrider.native.drafts import MOST_CHILDREN
from outrider.native.levels import Level, supported_levels
from outrider.native.library import NativeUnavailable, checked, ffi, library, load
from outrider.native.step import MOST_NODES
from outrider.native.weights import MOST_PARTS, STRIP

NUMBERS = {
    "limits": {"MOST_CHILDREN": MOST_CHILDREN},
    "step_limits": {"MOST_NODES": MOST_NODES},
    "projection_limits": {"MOST_PARTS": MOST_PARTS},
    "quant_limits": {"STRIP": STRIP},
}
STATUSES: dict[str, int] = ffi.typeof("outrider_status").relements
STRUCTS = [name for name in ffi.list_types()[0] if ffi.typeof(name).kind == "struct" and ffi.typeof(name).fields]


@pytest.mark.parametrize("level", supported_levels(), ids=lambda level: level.name)
def test_a_library_was_compiled_with_the_header_that_python_reads(level: Level) -> None:
    assert ffi.string(load(level).functions.outrider_abi()).decode() == abi()


def test_a_library_that_was_compiled_with_another_header_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "one.cpp").write_text(
        'extern "C" __attribute__((visibility("default"))) const char* outrider_abi() { return "another"; }'
    )
    monkeypatch.setattr(compiler, "SOURCE", source)
    monkeypatch.setattr(compiler, "LIBRARIES", tmp_path / "libraries")
    with pytest.raises(NativeUnavailable, match=r"another outrider_native\.h"):
        load(Level("other", (), frozenset()))


def test_the_library_exports_the_functions_of_the_header_alone() -> None:
    named = set(re.findall(r"\b(outrider_\w+)\(", re.sub(r"/\*.*?\*/", "", HEADER.read_text(), flags=re.DOTALL)))
    command = ["nm", "--dynamic", "--defined-only", "--format=just-symbols", str(library().path)]
    exported = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    assert len(named) > 20
    assert set(exported) == named


@pytest.mark.parametrize("name", sorted({*STATUSES} - {"OUTRIDER_OK"}))
def test_every_failure_has_an_exception_with_a_text(name: str) -> None:
    with pytest.raises((ValueError, LookupError, MemoryError, OSError, RuntimeError), match=" "):
        checked(STATUSES[name])


def test_success_is_no_exception() -> None:
    checked(STATUSES["OUTRIDER_OK"])


@pytest.mark.parametrize("enumeration", NUMBERS)
def test_limits_are_those_of_the_header(enumeration: str) -> None:
    named = {f"OUTRIDER_{name}": number for name, number in NUMBERS[enumeration].items()}
    assert ffi.typeof(f"outrider_{enumeration}").relements == named


def test_structs_lie_in_memory_as_the_compiler_has_them(tmp_path: Path) -> None:
    fields = [(struct, field) for struct in STRUCTS for field, _ in ffi.typeof(struct).fields]
    expressions = [f"sizeof({struct})" for struct in STRUCTS] + [
        f"offsetof({struct}, {field})" for struct, field in fields
    ]
    expected = [ffi.sizeof(struct) for struct in STRUCTS] + [ffi.offsetof(struct, field) for struct, field in fields]
    source, program = tmp_path / "layout.cpp", tmp_path / "layout"
    includes = "".join(f"#include {name}\n" for name in ("<cstddef>", "<cstdint>", "<cstdio>", f'"{HEADER}"'))
    prints = "".join(f'std::printf("%zu\\n", {each});\n' for each in expressions)
    source.write_text(f"{includes}int main() {{\n{prints}}}\n")
    subprocess.run([*compiler.compiler(), "-DOUTRIDER_NOEXCEPT=noexcept", str(source), "-o", str(program)], check=True)
    printed = subprocess.run([program], check=True, capture_output=True, text=True).stdout.split()
    assert len(STRUCTS) > 10
    assert [int(number) for number in printed] == expected
