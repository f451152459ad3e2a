"""Packages that the documentation shows."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

_DOCS = Path(__file__).parents[1] / "docs"


def install_recipe(document: str, module: str, sources: Path, target: Path) -> None:
    """Builds the package with the ``module`` that a document shows, and installs it in ``target`` without a network."""
    text = (_DOCS / document).read_text()
    code, project = (re.search(rf"```{kind}\n(.*?)```", text, re.DOTALL) for kind in ("python", "toml"))
    assert code
    assert project
    sources.mkdir()
    (sources / f"{module}.py").write_text(code[1])
    (sources / "pyproject.toml").write_text(project[1])
    install(sources, target)


def install(sources: Path, target: Path) -> None:
    """Builds the package in the folder ``sources``, and installs it in ``target`` without a network."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--no-build-isolation"]
    subprocess.run([*command, "--disable-pip-version-check", "--target", target, sources], check=True, timeout=60)
