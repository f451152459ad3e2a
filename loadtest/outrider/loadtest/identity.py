"""Whether guesses, batches and replicas change what is said: they must not. `python -m outrider.loadtest.identity`.

Completes held-out prompts, greedily and at temperature 1 with a seed, once one at a time without speculation and then
in every way that could make a difference, and counts the answers whose tokens or log-probabilities differ. ``--with``
mixes in what else may be asked of a draw: each prompt takes some of it, by its number in binary.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

import httpx
from outrider.loadtest import prompts

_READY_S = 180.0
_CONCURRENCY = 8
Answers = dict[tuple[int, float], Any]

_SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 12}, "size": {"type": "integer"}},
    "required": ["name", "size"],
    "additionalProperties": False,
}
MIXED: dict[str, dict[str, Any]] = {
    "penalties": {
        "repetition_penalty": 1.1,
        "frequency_penalty": 0.2,
        "presence_penalty": 0.3,
        "logit_bias": {"10": 1.5},
        "bad_words": ["self", "return"],
    },
    "top-p": {"top_p": 0.9, "top_k": 100, "min_p": 0.01},
    "schema": {"structured_outputs": {"json": _SCHEMA}},
    "n": {"n": 2},
    "logprobs": {"logprobs": 3, "echo": True},
}
"""What may be mixed in, by name."""

_LOCAL = ["random", "ngram", "suffix", "medusa"]
"""Drafters of the verifier."""


def main() -> int:
    """Runs every pass, prints a line each, and returns 1 if a strict answer differed."""
    parser = argparse.ArgumentParser(prog="python -m outrider.loadtest.identity", description=__doc__)
    parser.add_argument("--prompts", type=int, default=200, help="held-out prompts, each at two temperatures")
    parser.add_argument("--max-tokens", type=int, default=48)
    parser.add_argument("--determinism", choices=["strict", "fast"], default="strict")
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--with", dest="mixed", nargs="*", choices=list(MIXED), default=[], help="mixed in, by name")
    options = parser.parse_args()
    with _mesh(options, verifiers=1) as url:
        wanted = _pass(url, options, "off", 1)
        count = sum(len(tokens) for told in wanted.values() for tokens, _ in told)
        print(f"off, one at a time: {len(wanted)} answers, {count} tokens", flush=True)
        different = _differ(url, options, wanted, "off", "off")
        for drafter in ("model", *_LOCAL):
            different += _differ(url, options, wanted, {"drafters": [drafter]}, drafter)
    with _mesh(options, verifiers=2) as url:
        different += _differ(url, options, wanted, {"drafters": ["model", *_LOCAL]}, "all, two verifiers")
    print(f"{options.determinism}, {options.dtype}: {different} answers differ")
    return int(different > 0 and options.determinism == "strict")


def _differ(url: str, options: argparse.Namespace, wanted: Answers, speculation: Any, name: str) -> int:
    got = _pass(url, options, speculation, _CONCURRENCY)
    different = sum(bool(got[key] != wanted[key]) for key in wanted)
    print(f"{name}, {_CONCURRENCY} at a time: {different} of {len(wanted)} differ", flush=True)
    return different


def _pass(url: str, options: argparse.Namespace, speculation: Any, concurrency: int) -> Answers:
    return asyncio.run(_complete_all(url, options, speculation, concurrency))


async def _complete_all(url: str, options: argparse.Namespace, speculation: Any, concurrency: int) -> Answers:
    texts = prompts.held_out()[: options.prompts]
    keys = [(index, temperature) for index in range(len(texts)) for temperature in (0.0, 1.0)]
    gate = asyncio.Semaphore(concurrency)
    async with httpx.AsyncClient(base_url=url, timeout=120) as client:

        async def complete(index: int, temperature: float) -> Any:
            body = {
                "model": "pocket",
                "prompt": texts[index],
                "max_tokens": options.max_tokens,
                "temperature": temperature,
                "seed": index,
                "speculation": speculation,
                "return_tokens": True,
                **mixed(index, options.mixed),
            }
            async with gate:
                return told((await client.post("/v1/completions", json=body)).raise_for_status().json())

        return dict(zip(keys, await asyncio.gather(*(complete(*key) for key in keys)), strict=True))


def mixed(index: int, names: Sequence[str]) -> dict[str, Any]:
    """What the ``index``-th prompt takes of what is mixed in: all combinations come up, the first is none."""
    chosen = [MIXED[name] for place, name in enumerate(names) if index >> place & 1]
    return {key: value for extra in chosen for key, value in extra.items()}


def told(answer: Any) -> list[tuple[list[int], Any]]:
    """Tokens and log-probabilities of each choice of a completion."""
    extra = answer["outrider"]
    tokens = [choice["tokens"] for choice in extra.get("choices", [extra])]
    return [(ids, choice["logprobs"]) for ids, choice in zip(tokens, answer["choices"], strict=True)]


@contextlib.contextmanager
def _mesh(options: argparse.Namespace, verifiers: int) -> Iterator[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    settings = {
        "verifier.determinism": options.determinism,
        "verifier.dtype": options.dtype,
        "verifier.drafters": json.dumps(_LOCAL),
    }
    chosen = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
    command = [
        sys.executable,
        "-c",
        "from outrider.cli.main import main; main()",
        "up",
        "--port",
        str(port),
        "--verifiers",
        str(verifiers),
    ]
    process = subprocess.Popen([*command, *chosen], stdout=subprocess.DEVNULL)
    try:
        yield _wait(f"http://127.0.0.1:{port}", process)
    finally:
        process.terminate()
        process.wait()


def _wait(url: str, process: subprocess.Popen[bytes]) -> str:
    until = time.monotonic() + _READY_S
    while process.poll() is None and time.monotonic() < until:
        with contextlib.suppress(httpx.TransportError):
            if httpx.get(f"{url}/readyz").is_success:
                return url
        time.sleep(0.2)
    raise SystemExit("the mesh did not become ready")


if __name__ == "__main__":
    sys.exit(main())
