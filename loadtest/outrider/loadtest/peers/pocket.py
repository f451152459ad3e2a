"""The shipped target in Outrider and in OpenVINO GenAI; both continue held-out code."""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from importlib import resources
from typing import Any

import uvloop
from outrider.loadtest.load import turns
from outrider.loadtest.load.code_workloads import CodeSupply
from outrider.loadtest.load.prompts import unique
from outrider.loadtest.load.turns import Case, Turn
from outrider.loadtest.meshes import local_mesh
from outrider.loadtest.peers import openvino, openvino_process
from outrider.loadtest.peers.openvino_process import Peer, PeerConfig
from outrider.loadtest.peers.ratios import Rivals
from outrider.loadtest.peers.ways import OPENVINO, OUTRIDER, Engines, Plan, mode

DEFAULTS: dict[str, Any] = {"workloads": ["code"], "concurrency": [1, 8], "guesses": [4], "max_tokens": 128}
RIVALS = (Rivals(OUTRIDER, OPENVINO, {(None, 1): 1.2, (None, 8): 1.2}),)


def rivals(options: argparse.Namespace) -> tuple[Rivals, ...]:
    """Pairs to compare."""
    return RIVALS


"""Least ratios of Outrider's best way to the peer's best way."""
_OURS: dict[str, tuple[str, Any]] = {"strict": ("strict", {}), "fast": ("fast", {}), "fast, off": ("fast", "off")}
"""Outrider's ways: determinism and ``speculation``."""
_WARM_UP, _PIECES_APART = 4, 53


def start(options: argparse.Namespace, stack: ExitStack) -> Engines[str]:
    """Starts both engines."""
    engines: Engines[str] = Engines()
    target = stack.enter_context(
        resources.as_file(resources.files("outrider.engine.models") / "pocket" / "weights" / "target")
    )
    peer = stack.enter_context(openvino_process.running(options.cache / "openvino", [target]))
    engines.versions.extend(openvino_process.versions(options.cache / "openvino"))
    engines.formats["pocket"] = openvino_process.weight_format(target)
    settings = dict(text.split("=", 1) for text in options.set)
    urls = {
        name: stack.enter_context(local_mesh.running(settings | {"verifier.determinism": name}, proposers=0)).url
        for name in ("strict", "fast")
    }
    for way, (name, speculation) in _OURS.items():
        ours = partial(_ours, urls[name], mode(OUTRIDER, way), speculation, options.max_tokens)
        engines.ways[mode(OUTRIDER, way)] = ours
    configs = openvino.ways(options.guesses, ("u8",), chat=False)
    for name, config in configs.items():
        engines.ways[name] = partial(_theirs, peer, name, config, options.max_tokens)
    return engines


def plan(options: argparse.Namespace) -> Plan[str]:
    """Every workload at every concurrency; each repeat has other prompts."""
    cases = [Case(kind, 0.0, streams) for kind, streams in itertools.product(options.workloads, options.concurrency)]
    supplies = itertools.chain.from_iterable(
        itertools.repeat(CodeSupply((repeat + 1) * _PIECES_APART), len(cases)) for repeat in range(options.repeats)
    )

    def prompts(case: Case) -> list[str]:
        return next(supplies).take(case.workload, max(options.requests, 2 * case.concurrency))

    return Plan(cases, prompts, CodeSupply().take("code", _WARM_UP), options.repeats, options.minutes)


def _ours(
    url: str, name: str, speculation: Any, max_tokens: int, case: Case, prompts: Sequence[str], repeat: int
) -> Turn:
    turn = uvloop.run(turns.run_turn(url, name, speculation, case, prompts, max_tokens, repeat))
    print(turn, flush=True)
    return turn


def _theirs(
    peer: Peer, name: str, config: PeerConfig, max_tokens: int, case: Case, prompts: Sequence[str], repeat: int
) -> Turn:
    headed = [next(unique([prompt], f"{name} {repeat} {number}")) for number, prompt in enumerate(prompts)]
    answers = peer.answer(config, case.concurrency, headed, [max_tokens] * len(headed))
    if any(len(tokens) != max_tokens for tokens in answers.tokens):
        raise SystemExit(f"OpenVINO's answers have {sorted(map(len, answers.tokens))} tokens, not {max_tokens}")
    return openvino.turn(name, case, repeat, answers)
