"""Published clients of others, which `make clients-check` installs."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.gateway.stack import Stack
from tests.gateway.streaming import Gateway

HERE = Path(__file__).parent
ENVIRONMENTS = HERE.parents[1] / ".venv-clients"
ELSEWHERE = dict.fromkeys(("instructor", "langchain", "litellm", "ollama"), "openai2") | {
    each: each for each in ("llama_index", "lm_eval")
}
"""Environments of packages that do not go with the others."""
PACKAGES = HERE / "npm" / "node_modules"

pytestmark = pytest.mark.timeout(300)


def run(*command: str | Path, gateway: Gateway, **given: str) -> None:
    """Runs checks against a gateway; fails with their output if a check fails."""
    given = os.environ | {"ONE": gateway.url} | given
    given.pop("PYTHONPATH", None)
    done = subprocess.run(command, cwd=HERE, env=given, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    "package",
    [
        "agents",
        "dspy",
        "instructor",
        "langchain",
        "langchain_anthropic",
        "litellm",
        "llama_index",
        "llm",
        "lm_eval",
        "ollama",
        "pydantic_ai",
        "smolagents",
    ],
)
def test_a_package_of_pythons_works_unmodified(one: Gateway, package: str, request: pytest.FixtureRequest) -> None:
    python = ENVIRONMENTS / ELSEWHERE.get(package, "main") / "bin" / "python"
    if not python.exists():
        pytest.skip(f"{package} is not installed: make clients-check")
    calling: Stack = request.getfixturevalue("calling")
    run(
        python,
        "-m",
        "pytest",
        "-c",
        "python/pytest.ini",
        f"python/{package}_checks.py",
        gateway=one,
        CALLING=calling.url,
    )


@pytest.mark.parametrize(
    ("package", "checks"),
    [("ai", "ai.js"), ("openai", "openai.js"), ("@anthropic-ai/sdk", "anthropic.js"), ("ollama", "ollama.js")],
)
def test_a_package_of_nodes_works_unmodified(one: Gateway, package: str, checks: str) -> None:
    if shutil.which("node") is None or not (PACKAGES / package).exists():
        pytest.skip(f"there is no node, or the package {package} is not installed: make clients-check")
    run("node", "--test", "--test-reporter=tap", f"npm/{checks}", gateway=one)
