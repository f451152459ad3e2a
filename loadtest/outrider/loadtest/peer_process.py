"""A peer in a virtual environment of its own: made once, then run as a process that answers lines of JSON."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import venv
from collections.abc import Iterator, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec

PACKAGES = ("torch==2.13.0", "openvino-genai==2026.4.1.0", "optimum-intel[openvino]==2.2.0")
"""What the peer is made of; the exporter needs torch, of which other versions than this would come in by themselves."""
_UNWANTED = "torchvision"
_WORKER = Path(__file__).with_name("openvino_worker.py")


class Spoken(msgspec.Struct, frozen=True):
    """What the peer made of some prompts: seconds, and the tokens of each answer."""

    seconds: float
    tokens: list[list[int]]

    @property
    def tokens_per_s(self) -> float:
        """Tokens a second over all answers."""
        return sum(map(len, self.tokens)) / self.seconds


class Peer:
    """OpenVINO GenAI with the shipped target."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def complete(self, mode: str, streams: int, prompts: Sequence[str], max_tokens: int) -> Spoken:
        """Greedy answers of ``max_tokens`` tokens each; mode is plain or lookup.

        Raises:
            SystemExit: the peer ended.
        """
        asked: dict[str, Any] = {"mode": mode, "streams": streams, "prompts": prompts, "max_tokens": max_tokens}
        assert self._process.stdin
        assert self._process.stdout
        if self._process.poll() is None:
            self._process.stdin.write(msgspec.json.encode(asked) + b"\n")
            self._process.stdin.flush()
        if not (line := self._process.stdout.readline()):
            raise SystemExit("the peer ended: see above for what it said")
        return msgspec.json.decode(line, type=Spoken)


@contextlib.contextmanager
def running(environment: Path) -> Iterator[Peer]:
    """The peer, until the block is left; its virtual environment and its model are made if they are not there.

    Raises:
        CalledProcessError: a step of the making failed.
    """
    python = environment / "bin" / "python"
    if not _complete(python):
        _make(environment, python)
    model = environment / "models" / "pocket-float32"
    if not (model / "openvino_tokenizer.xml").is_file():
        _export(environment, model)
    with subprocess.Popen([python, _WORKER, model], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        yield Peer(process)
        assert process.stdin
        process.stdin.close()


def versions(environment: Path) -> list[str]:
    """The peer's packages, ``name==version``."""
    listing = subprocess.run(
        [environment / "bin" / "python", "-m", "pip", "freeze"], check=True, capture_output=True, text=True
    )
    wanted = ("openvino", "optimum", "torch", "transformers")
    return [line for line in listing.stdout.splitlines() if line.startswith(wanted)]


def _complete(python: Path) -> bool:
    if not python.is_file():
        return False
    return subprocess.run([python, "-c", "import openvino_genai, optimum.intel"], capture_output=True).returncode == 0


def _make(environment: Path, python: Path) -> None:
    print(f"Making {environment} with {', '.join(PACKAGES)}", file=sys.stderr)
    venv.create(environment, with_pip=True)
    subprocess.run([python, "-m", "pip", "install", "--quiet", *PACKAGES], check=True)
    subprocess.run([python, "-m", "pip", "uninstall", "--quiet", "--yes", _UNWANTED], check=True)


def _export(environment: Path, model: Path) -> None:
    with resources.as_file(resources.files("outrider.models") / "pocket" / "weights" / "target") as target:
        command: list[str | Path] = [environment / "bin" / "optimum-cli", "export", "openvino", "-m", target]
        command += ["--task", "text-generation-with-past", "--weight-format", "fp32", model]
        offline = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "PYTHONPATH": ""}
        subprocess.run(command, check=True, env=os.environ | offline, stdout=subprocess.DEVNULL)
