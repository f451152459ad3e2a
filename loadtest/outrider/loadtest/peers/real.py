"""A given model in Outrider with its defaults, in llama.cpp and in OpenVINO GenAI, on the same chats.

Without ``--model``, Outrider runs llama.cpp's GGUF file, and OpenVINO GenAI, which reads none, is left out.
"""

from __future__ import annotations

import argparse
import itertools
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import structs
from outrider.loadtest.chats import chat_turns, modes
from outrider.loadtest.load.turns import Case, Plan
from outrider.loadtest.peers import environments, llama, openvino, openvino_process
from outrider.loadtest.peers.environments import PeerMissing
from outrider.loadtest.peers.ratios import Rivals
from outrider.loadtest.peers.ways import LLAMA, OPENVINO, OUTRIDER, Engines, mode
from outrider.measure.chats.chat_request import ChatRequest
from outrider.measure.chats.supply import ChatSupply

DEFAULTS: dict[str, Any] = {"workloads": ["edit", "code"], "concurrency": [1, 4, 8], "guesses": [5, 8]}
RIVALS = (
    Rivals(f"{OUTRIDER} on", OPENVINO, {("edit", 1): 2.0, ("edit", 8): 2.0}),
    Rivals(f"{OUTRIDER} off", f"{OPENVINO} plain", {(None, 1): 1.25, (None, 8): 1.4}),
    Rivals(f"{OUTRIDER} on", LLAMA),
    Rivals(f"{OUTRIDER} off", f"{LLAMA} plain"),
    Rivals(f"{OUTRIDER} on", f"{OUTRIDER} off"),
    Rivals(f"{OUTRIDER} control", f"{OUTRIDER} off"),
)
"""Pairs to compare, with the least ratio of their speeds."""
SAME_FILE = (
    Rivals(f"{OUTRIDER} off", f"{LLAMA} plain", {("code", 1): 1.5, ("code", 8): 3.0, ("prefill", 1): 2.0}),
    Rivals(f"{OUTRIDER} on", LLAMA, {("edit", 1): 4.0}),
    Rivals(f"{OUTRIDER} on", f"{OUTRIDER} off"),
    Rivals(f"{OUTRIDER} control", f"{OUTRIDER} off"),
)
"""The pairs where both engines run the same file."""
_WARM_UP, _WARM_UP_TOKENS = 4, 32


def rivals(options: argparse.Namespace) -> tuple[Rivals, ...]:
    """Pairs to compare."""
    return RIVALS if options.model else SAME_FILE


def start(options: argparse.Namespace, stack: ExitStack) -> Engines[ChatRequest]:
    """Starts all engines.

    Raises:
        SystemExit: a peer that ``--peers`` names is missing.
    """
    engines: Engines[ChatRequest] = Engines()
    ours = options if options.model else _same_file(options)
    for way in ("off", "control", "on"):
        url = stack.enter_context(modes.running(ours, way)).url
        engines.ways[mode(OUTRIDER, way)] = partial(
            chat_turns.run_turn, url, mode(OUTRIDER, way), modes.MODES[way].speculation
        )
    for peer, start_peer in (("llama", _llama), ("openvino", _openvino)):
        if peer not in (options.peers or (peer,)):
            engines.missing.append(f"{peer}, which --peers does not name")
            continue
        try:
            start_peer(options, stack, engines)
        except PeerMissing as error:
            if options.peers:
                raise SystemExit(f"{peer}: {error}") from error
            engines.missing.append(f"{peer}: {error}")
    return engines


def _same_file(options: argparse.Namespace) -> argparse.Namespace:
    return argparse.Namespace(**vars(options) | {"model": options.gguf, "draft": options.draft_gguf})


def plan(options: argparse.Namespace) -> Plan[ChatRequest]:
    """Every workload at every concurrency, greedily."""
    supply = ChatSupply(options.seed, max_tokens=options.max_tokens)
    cases = [Case(kind, 0.0, streams) for kind, streams in itertools.product(options.workloads, options.concurrency)]
    warm = [structs.replace(chat, max_tokens=_WARM_UP_TOKENS) for chat in supply.take("chat", _WARM_UP, 0.0)]

    def requests(case: Case) -> list[ChatRequest]:
        count = max(options.requests, 2 * case.concurrency if case.concurrency > 1 else 1)
        return supply.take(case.workload, count, case.temperature)

    return Plan(cases, requests, warm, options.repeats, options.minutes)


def _llama(options: argparse.Namespace, stack: ExitStack, engines: Engines[ChatRequest]) -> None:
    if not options.gguf:
        raise PeerMissing("--gguf names no file for it")
    program = llama.server(options.cache / "llama")
    engines.versions.extend(environments.versions(options.cache / "llama", "llama"))
    if not options.draft_gguf:
        engines.missing.append(f"{LLAMA} with a draft model: --draft-gguf names no file")
    for way, flags in llama.ways(options.draft_gguf).items():
        url = stack.enter_context(llama.running(program, options.gguf, flags, max(2, *options.concurrency)))
        engines.ways[mode(LLAMA, way)] = partial(chat_turns.run_turn, url, mode(LLAMA, way), "off")


def _openvino(options: argparse.Namespace, stack: ExitStack, engines: Engines[ChatRequest]) -> None:
    if not options.model:
        raise PeerMissing("it reads no GGUF file")
    models = [model for model in (options.model, options.draft) if model]
    peer = stack.enter_context(openvino_process.running(options.cache / "openvino", models))
    engines.versions.extend(openvino_process.versions(options.cache / "openvino"))
    engines.formats.update({model.name: openvino_process.weight_format(model) for model in models})
    if not options.draft:
        engines.missing.append(f"{OPENVINO} with a draft model or a head: --draft names no directory")
    caches = openvino.precisions(Path("/proc/cpuinfo").read_text())
    if "bf16" not in caches:
        engines.missing.append(f"{OPENVINO} with a KV cache in bf16: on this processor it computes in f32")
    configs = openvino.ways(options.guesses, caches, draft=bool(options.draft))
    engines.ways.update({name: partial(openvino.run_chats, peer, name, config) for name, config in configs.items()})
