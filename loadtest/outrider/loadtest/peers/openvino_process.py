"""OpenVINO GenAI in a virtual environment of its own: a process that answers lines of JSON."""

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

PACKAGES = ("torch==2.13.0", "openvino-genai==2026.4.1.0", "optimum-intel[openvino]==2.2.0")
"""What the peer is made of; the exporter needs torch, of which other versions than this would come in by themselves."""
_UNWANTED = ("torchvision",)
_WORKER = Path(__file__).with_name("openvino_worker.py")
_OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "PYTHONPATH": ""}
FORMATS = {"float32": "fp32", "float16": "fp16", "bfloat16": "fp16"}
"""The exporter's weight format by a checkpoint's dtype; it has none for bfloat16."""


class How(msgspec.Struct, frozen=True):
    """A way of running the peer.

    Attributes:
        mode: plain, lookup or draft.
        kv: precision of the KV cache, u8 (the peer's default), or bf16 or f32 as it computes.
        guesses: tokens guessed in a step.
        chat: prompts are chats and answers end by themselves; else they are completed, all to their last token.
    """

    mode: str
    kv: str = "u8"
    guesses: int = 0
    chat: bool = True


class Spoken(msgspec.Struct, frozen=True):
    """What the peer made of some prompts: seconds, the tokens of each answer, and how many each prompt has."""

    seconds: float
    tokens: list[list[int]]
    prompt_tokens: list[int]


class Peer:
    """OpenVINO GenAI with a model."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def answer(self, how: How, streams: int, prompts: Sequence[str], max_tokens: Sequence[int]) -> Spoken:
        """Greedy answers of at most ``max_tokens`` tokens each, ``streams`` at a time.

        Raises:
            SystemExit: the peer ended.
        """
        asked = msgspec.structs.asdict(how) | {"streams": streams, "prompts": prompts, "max_tokens": max_tokens}
        assert self._process.stdin
        assert self._process.stdout
        if self._process.poll() is None:
            self._process.stdin.write(msgspec.json.encode(asked) + b"\n")
            self._process.stdin.flush()
        if not (line := self._process.stdout.readline()):
            raise SystemExit("OpenVINO ended: see above for what it said")
        return msgspec.json.decode(line, type=Spoken)


@contextlib.contextmanager
def running(environment: Path, models: Sequence[Path]) -> Iterator[Peer]:
    """The peer, until the block is left; its virtual environment and its models are made if they are not there.

    Args:
        environment: its virtual environment, which holds the exported models as well.
        models: Hugging Face directories of the target and, where there is one, of the draft model.

    Raises:
        PeerMissing: a step of the making failed.
    """
    python = environments.make(environment, PACKAGES, _UNWANTED)
    exported = [export(environment, model) for model in models]
    command: list[str | Path] = [python, "-P", _WORKER, *exported]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        yield Peer(process)
        assert process.stdin
        process.stdin.close()


def weight_format(model: Path) -> str:
    """The format in which a checkpoint is exported: that of its dtype, fp16 where it tells none."""
    config = msgspec.json.decode((model / "config.json").read_bytes())
    return FORMATS.get(config.get("dtype") or config.get("torch_dtype"), "fp16")


def export(environment: Path, model: Path) -> Path:
    """Where ``model`` stands as the peer reads it; it is exported there if it is not there yet."""
    form = weight_format(model)
    written = (model / "config.json").stat().st_mtime_ns
    told = hashlib.sha256(f"{model.resolve()} {written}".encode()).hexdigest()[:8]
    out = environment / "models" / f"{model.name}-{form}-{told}"
    if not out.is_dir():
        part = out.with_suffix(".part")
        command: list[str | Path] = [environment / "bin" / "optimum-cli", "export", "openvino", "-m", model]
        command += ["--task", "text-generation-with-past", "--weight-format", form, part]
        try:
            subprocess.run(command, check=True, env=os.environ | _OFFLINE, stdout=sys.stderr)
        except subprocess.CalledProcessError as error:
            raise PeerMissing(f"the export of {model.name} failed: see above for what it said") from error
        part.rename(out)
    return out


def versions(environment: Path) -> list[str]:
    """The peer's packages, ``name==version``."""
    return environments.versions(environment, "openvino", "optimum", "torch", "transformers")
