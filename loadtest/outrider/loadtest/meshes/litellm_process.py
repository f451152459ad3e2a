"""LiteLLM's proxy in its own virtual environment, in front of an engine that speaks OpenAI's HTTP."""

from __future__ import annotations

import contextlib
import os
import secrets
import subprocess
import sys
import time
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec

_READY_S = 120.0
_QUIET = {
    "LITELLM_TELEMETRY": "False",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LITELLM_LOG": "ERROR",
    "LITELLM_MODE": "PRODUCTION",
    "DISABLE_ADMIN_UI": "true",
}


class LiteLlm(msgspec.Struct, frozen=True):
    """A running proxy: its URL, its API key and its process id."""

    url: str
    key: str
    pid: int


def install(environment: Path) -> None:
    """Creates the virtual environment; `CalledProcessError` if pip fails."""
    venv.create(environment, with_pip=True)
    subprocess.run([environment / "bin" / "pip", "install", "--quiet", "litellm[proxy]"], check=True)


def version(environment: Path) -> str:
    """The version of LiteLLM in ``environment``."""
    code = "from importlib.metadata import version; print(version('litellm'))"
    output = subprocess.run([environment / "bin" / "python", "-c", code], check=True, capture_output=True, text=True)
    return output.stdout.strip()


@contextlib.contextmanager
def running(environment: Path, directory: Path, model: str, engine: str, port: int) -> Iterator[LiteLlm]:
    """Runs one worker that forwards ``model`` to the ``engine``'s URL inside the block; logs go to ``directory``.

    Raises:
        SystemExit: LiteLLM did not become ready.
    """
    key, log = f"sk-{secrets.token_urlsafe(32)}", directory / "litellm.log"
    config = directory / "litellm.json"  # JSON is YAML
    config.write_bytes(msgspec.json.encode(_config(model, engine, key)))
    command: list[str | Path] = [
        environment / "bin" / "litellm",
        "--config",
        config,
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
    ]
    with (
        log.open("wb") as output,
        subprocess.Popen(command, stdout=output, stderr=output, env=os.environ | _QUIET) as process,
    ):
        try:
            _wait(f"http://127.0.0.1:{port}", process, log)
            yield LiteLlm(f"http://127.0.0.1:{port}", key, process.pid)
        finally:
            process.terminate()


def _config(model: str, engine: str, key: str) -> dict[str, Any]:
    params = {"model": f"openai/{model}", "api_base": f"{engine}/v1", "api_key": "none"}
    return {
        "model_list": [{"model_name": model, "litellm_params": params}],
        "general_settings": {"master_key": key},
        "litellm_settings": {"telemetry": False},
    }


def _wait(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + _READY_S
    while process.poll() is None and time.monotonic() < until:
        with contextlib.suppress(httpx.TransportError):
            if httpx.get(f"{url}/health/liveliness", trust_env=False).is_success:
                return
        time.sleep(0.3)
    print(log.read_text(), file=sys.stderr)
    raise SystemExit("LiteLLM did not become ready")
