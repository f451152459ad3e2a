"""OpenVINO GenAI in its own virtual environment: a process that answers lines of JSON."""

from __future__ import annotations

import contextlib
import hashlib
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
from outrider.loadtest.peers import environments
from outrider.loadtest.peers.environments import PeerMissing

PACKAGES = ("torch==2.13.0", "openvino-genai==2026.4.1.0", "optimum-intel[openvino]==2.2.0", "einops==0.8.2")
"""The peer's packages; the exporter needs torch, and would install another version of it."""
_UNWANTED = ("torchvision",)
_WORKER = Path(__file__).with_name("openvino_worker.py")
_OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "PYTHONPATH": ""}
FORMATS = {"float32": "fp32", "float16": "fp16", "bfloat16": "fp16"}
"""The exporter's weight format by a checkpoint's dtype; the exporter has none for bfloat16."""


class PeerConfig(msgspec.Struct, frozen=True):
    """A way of running the peer.

    Attributes:
        mode: plain, lookup or draft (a draft model or a head).
        kv: precision of the KV cache: u8 (the peer's default), or bf16 or f32, as the peer computes.
        guesses: tokens guessed in a step.
    """

    mode: str
    kv: str = "u8"
    guesses: int = 0


class PeerAnswers(msgspec.Struct, frozen=True):
    """The peer's answers: seconds of all, the tokens of each answer, and the number of each prompt's tokens."""

    seconds: float
    tokens: list[list[int]]
    prompt_tokens: list[int]


class Peer:
    """OpenVINO GenAI with a model."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def answer(
        self, config: PeerConfig, streams: int, prompts: Sequence[str], max_tokens: Sequence[int]
    ) -> PeerAnswers:
        """Greedy answers of at most ``max_tokens`` tokens each, ``streams`` at a time.

        Raises:
            SystemExit: the peer ended.
        """
        request = msgspec.structs.asdict(config) | {"streams": streams, "prompts": prompts, "max_tokens": max_tokens}
        assert self._process.stdin
        assert self._process.stdout
        if self._process.poll() is None:
            self._process.stdin.write(msgspec.json.encode(request) + b"\n")
            self._process.stdin.flush()
        if not (line := self._process.stdout.readline()):
            raise SystemExit("OpenVINO ended: see its output above")
        return msgspec.json.decode(line, type=PeerAnswers)


@contextlib.contextmanager
def running(environment: Path, models: Sequence[Path]) -> Iterator[Peer]:
    """Runs the peer inside the block; creates its virtual environment and exports models if they are missing.

    Args:
        environment: its virtual environment, which holds the exported models as well.
        models: Hugging Face directories of the target and, optionally, of the draft model or the EAGLE-3 head.

    Raises:
        PeerMissing: the installation or an export failed.
    """
    python = environments.make(environment, PACKAGES, _UNWANTED)
    exported = [export(environment, model) for model in models]
    command: list[str | Path] = [python, "-P", _WORKER, *exported]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        yield Peer(process)
        assert process.stdin
        process.stdin.close()


def weight_format(model: Path) -> str:
    """The format of a checkpoint's export: that of its dtype, fp16 for a checkpoint without one."""
    config = msgspec.json.decode((model / "config.json").read_bytes())
    return FORMATS.get(config.get("dtype") or config.get("torch_dtype"), "fp16")


def export(environment: Path, model: Path) -> Path:
    """Directory of ``model`` in the peer's format; exports the model if the directory is missing."""
    weights = weight_format(model)
    written = (model / "config.json").stat().st_mtime_ns
    digest = hashlib.sha256(f"{model.resolve()} {written}".encode()).hexdigest()[:8]
    out = environment / "models" / f"{model.name}-{weights}-{digest}"
    if not out.is_dir():
        part = out.with_suffix(".part")
        command: list[str | Path] = [environment / "bin" / "optimum-cli", "export", "openvino", "-m", model]
        command += ["--task", "text-generation-with-past", "--weight-format", weights, part]
        settings = os.environ | _OFFLINE
        if "Eagle3" in str(msgspec.json.decode((model / "config.json").read_bytes()).get("architectures")):
            # The exporter loads its own class for heads as remote code. That module wants to import diffusers, which
            # heads do not need and whose releases do not fit the exporter's transformers.
            stand_in = environment / "stand-in"
            (stand_in / "diffusers").mkdir(parents=True, exist_ok=True)
            (stand_in / "diffusers" / "__init__.py").touch()
            command += ["--trust-remote-code"]
            settings |= {"PYTHONPATH": str(stand_in)}
        try:
            subprocess.run(command, check=True, env=settings, stdout=sys.stderr)
        except subprocess.CalledProcessError as error:
            raise PeerMissing(f"the export of {model.name} failed: see its output above") from error
        part.rename(out)
    return out


def versions(environment: Path) -> list[str]:
    """The peer's packages, ``name==version``."""
    return environments.versions(environment, "openvino", "optimum", "torch", "transformers")
