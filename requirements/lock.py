"""Writes the locks of the images: each package at its version in constraints.txt, with the SHA-256 of its files.

`make lock` runs this after a change of pyproject.toml or constraints.txt. PyTorch has a lock for each of its builds:
the one with CUDA is on PyPI, the one for CPUs on an index of PyTorch's own.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
REPOSITORY = HERE.parent
EXTRAS = {
    "gateway": ["gateway"],
    "tokenizer": ["tokenizer"],
    "kvcache": ["kvcache"],
    "engine": ["engine", "nvml", "tokenizer"],
}
_CUDA = re.compile(r"(torch|triton|nvidia-[a-z0-9-]+|cuda-[a-z0-9-]+)==")
_CPU_VERSION = "{}+cpu"
_HEADER = "# Written by `make lock`.\n"


def main() -> int:
    """Writes all locks; 1 if PyTorch's index did not answer, and its lock is for another version."""
    locks = {name: _compile("pyproject.toml", extras) for name, extras in EXTRAS.items()}
    locks["engine"], locks["torch-cuda"] = _split(locks["engine"])
    locks["build"] = _compile("-", [], "hatchling\nsetuptools\n")
    locks["wheels"] = _compile("-", [], "auditwheel\nhatchling\nziglang\n")
    locks["tools"] = _compile("requirements/tools.in", [])
    for name, packages in locks.items():
        _write(name, packages)
    return _lock_torch_for_cpus()


def _lock_torch_for_cpus() -> int:
    [constraint] = re.findall(r"^torch==(\S+)$", (REPOSITORY / "constraints.txt").read_text(), re.MULTILINE)
    pin = f"torch=={_CPU_VERSION.format(constraint)}"
    try:
        _write("torch-cpu", _compile("-", [], pin, "--no-deps", "--torch-backend", "cpu"))
    except subprocess.CalledProcessError:
        kept = f"\n{pin} " in (HERE / "torch-cpu.txt").read_text()
        print(f"PyTorch's index has no {pin}, or does not answer: torch-cpu.txt {'is kept' if kept else 'is wrong'}")
        return 0 if kept else 1
    return 0


def _compile(source: str, extras: list[str], text: str = "", *options: str) -> list[str]:
    """Packages that ``source`` needs, each with its hashes; of the standard input ``text`` if it is ``-``."""
    command = [str(Path(sys.executable).parent / "uv"), "pip", "compile", source, "-c", "constraints.txt"]
    command += ["--generate-hashes", "--no-annotate", "--no-header", "--quiet", "--no-config"]
    command += ["--python-version", "3.11", "--python-platform", "linux", *options]
    command += [part for extra in extras for part in ("--extra", extra)]
    done = subprocess.run(command, cwd=REPOSITORY, input=text, stdout=subprocess.PIPE, text=True, check=True)
    return re.findall(r"^\S.*\n(?:\s.*\n)*", done.stdout, re.MULTILINE)


def _split(packages: list[str]) -> tuple[list[str], list[str]]:
    """Those that every build of torch needs, and torch with CUDA."""
    cuda = [package for package in packages if _CUDA.match(package)]
    return [package for package in packages if package not in cuda], cuda


def _write(name: str, packages: list[str]) -> None:
    (HERE / f"{name}.txt").write_text(_HEADER + "".join(packages))


if __name__ == "__main__":
    sys.exit(main())
