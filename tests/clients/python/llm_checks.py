"""Simon Willison's published program llm, against the gateway at $ONE."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

MODEL = os.environ.get("MODEL", "toy")
MODELS = f"""
- model_id: mesh
  model_name: {MODEL}
  api_base: {os.environ["ONE"]}/v1
  supports_schema: true
  supports_tools: true
"""


def llm(directory: Path, *words: str) -> str:
    (directory / "extra-openai-models.yaml").write_text(MODELS)
    given = os.environ | {"LLM_USER_PATH": str(directory), "OPENAI_API_KEY": "none"}
    command = [Path(sys.executable).with_name("llm"), "-m", "mesh", "def f(", "-o", "max_tokens", "20", *words]
    done = subprocess.run(command, env=given, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_an_answer_is_the_same_streamed_or_not(tmp_path: Path) -> None:
    streamed, whole = ([llm(tmp_path, "-o", "seed", seed, *more) for seed in "345"] for more in ([], ["--no-stream"]))
    assert streamed == whole
    assert any(whole)  # an answer may end at once
