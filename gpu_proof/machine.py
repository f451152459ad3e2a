"""The machine: its packages completed by those of the pack, and what it is."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACK = ROOT / ".gpu-pack"
"""Wheels that `gpu_proof.pack` collected."""
_FOLDERS = ("wire", "mesh", "native", "kernels", "engine", "services", "benches", "clients/python")


class PackError(Exception):
    """The packages of the pack cannot be installed here."""


def environment(site: Path, *, dry: bool) -> dict[str, str]:
    """The environment of the stages: today's code, and in ``site`` the packages of the pack and Outrider's plug-ins.

    An environment in which Outrider is installed lacks none of them. Nothing is installed into the machine's Python.

    Raises:
        PackError: there is no pack, or pip cannot install it.
    """
    site.mkdir(parents=True, exist_ok=True)
    if not _installed():
        _install(sorted(map(str, PACK.glob("*.whl"))), site)
        write_plugins(site)
    paths = [str(site), *(str(ROOT / folder) for folder in _FOLDERS), str(ROOT)]
    made = os.environ | {"PYTHONPATH": os.pathsep.join(paths), "PYTHONUNBUFFERED": "1"}
    made["TRITON_CACHE_DIR"] = str(site.parent / "triton")
    for name in ("OUTRIDER_KERNELS", "TRITON_INTERPRET"):
        made.pop(name, None)
    if dry:
        made |= {"TRITON_INTERPRET": "1", "OUTRIDER_KERNELS": "triton", "OMP_NUM_THREADS": "1"}
    return made


def _install(wheels: list[str], site: Path) -> None:
    if not wheels:
        raise PackError(f"{PACK} has no wheels: run make gpu-pack on a machine with network, and copy that folder too")
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--no-compile"]
    command += ["--disable-pip-version-check", "--root-user-action=ignore", "--target", str(site), *wheels]
    installed = subprocess.run(command, capture_output=True, text=True, check=False)
    if installed.returncode:
        raise PackError(f"the packages of {PACK} cannot be installed: {installed.stderr.strip()[-500:]}")


def _installed() -> bool:
    try:
        importlib.metadata.distribution("outrider")
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def write_plugins(site: Path) -> None:
    """Writes the entry points of pyproject.toml, by which drafters and rules of acceptance are found."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    folder = site / f"outrider-{project['version']}.dist-info"
    folder.mkdir(exist_ok=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: outrider\nVersion: {project['version']}\n")
    groups = project["entry-points"].items()
    sections = [
        "\n".join([f"[{group}]", *(f"{name} = {place}" for name, place in own.items())]) for group, own in groups
    ]
    (folder / "entry_points.txt").write_text("\n\n".join(sections) + "\n")


def described(commit: str) -> dict[str, str]:
    """Card, driver and versions, by name."""
    named = {"commit": commit or _commit(), "python": platform.python_version(), "cores": str(os.cpu_count())}
    for package in ("torch", "triton", "numpy"):
        try:
            named[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            named[package] = "missing"
    named["card"] = _output("nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader")
    named["compiler"] = _output("g++", "--version").partition("\n")[0]
    return named


def _commit() -> str:
    return _output("git", "-C", str(ROOT), "rev-parse", "--short=12", "HEAD")


def _output(*command: str) -> str:
    """What a command prints; ``none`` where it is missing or fails."""
    if shutil.which(command[0]) is None:
        return "none"
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else "none"
