"""Properties of compiled kernels, for GPUs present or not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from outrider.benches.kernels import report
from outrider.kernels.compilation import CompiledKernel

_KIB = 1024
_SHARED = {"sm_80": 163 * _KIB, "sm_90": 227 * _KIB}
"""Limits of a program: CUDA C++ Programming Guide, "Technical specifications per compute capability"."""
_SPILLED = 64
"""Bytes of a thread: compilers move a few registers to memory so that one more program runs beside the others."""
_MATMULS = {"_matmul", "_attend"}


def run(*arguments: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "outrider.benches.kernels.report", *arguments]
    cache = {"TRITON_CACHE_DIR": str(folder / "cache")}
    return subprocess.run(command, capture_output=True, text=True, env=os.environ | cache | environment, check=False)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("shape", "gpus", "interpret"),
    [
        ("pocket", {"sm_80"}, "1"),
        ("llama-3.1-8b,llama-3.1-8b-awq,llama-3.1-8b-q4-k,llama-3.1-8b-q6-k", {"sm_90"}, "0"),
    ],
)
def test_every_kernel_of_a_model_compiles_for_a_gpu_within_its_means(
    shape: str, gpus: set[str], interpret: str, tmp_path: Path
) -> None:
    arguments = ("--shapes", shape, "--gpus", ",".join(gpus), "--out", str(tmp_path))
    completed = run(*arguments, folder=tmp_path, TRITON_INTERPRET=interpret)
    assert completed.returncode == 0, completed.stderr[-2000:]
    kernels = json.loads((tmp_path / "kernels.json").read_text())
    assert {kernel["gpu"] for kernel in kernels} == gpus
    for kernel in kernels:
        assert kernel["spilled"] <= _SPILLED, kernel
        assert kernel["shared"] <= _SHARED[kernel["gpu"]], kernel
        assert (kernel["matmuls"] != "none") == (kernel["kernel"] in _MATMULS), kernel
    markdown = (tmp_path / "kernels.md").read_text().splitlines()
    assert len(markdown) == len(kernels) + 2
    assert markdown[0].startswith("| op | variant | kernel | gpu | warps | registers | spilled |")


def test_the_most_of_each_kernel_is_told_for_each_gpu() -> None:
    def line(kernel: str, gpu: str, registers: int, spilled: int, shared: int, matmuls: str) -> report.Line:
        return report.Line(
            "linear", "", kernel, gpu, CompiledKernel(4, registers, spilled, shared, 16, matmuls, "none")
        )

    lines = [
        line("_matmul", "sm_80", 200, 8, 1024, "mma.sync"),
        line("_matmul", "sm_80", 255, 0, 512, "mma.sync"),
        line("_matmul", "sm_90", 168, 0, 98304, "wgmma"),
        line("_to_fp8", "sm_90", 48, 0, 0, "none"),
    ]
    first, second = report.most(lines, ["sm_80", "sm_90"])
    assert first == {
        "op": "linear",
        "kernel": "_matmul",
        "kernels": "2, 1",
        "registers": "255, 168",
        "spilled": "8, 0",
        "shared": "1.0, 96.0",
        "matmul": "mma.sync, wgmma",
        "copies": "",
    }
    assert (second["kernels"], second["shared"], second["matmul"]) == ("–, 1", "–, 0.0", "")


def test_an_unknown_shape_is_refused_by_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["report", "--shapes", "pocket,gpt-2"])
    with pytest.raises(SystemExit, match="2"):
        report.main()
    assert "'gpt-2' is none of pocket, llama-3.1-8b," in capsys.readouterr().err
