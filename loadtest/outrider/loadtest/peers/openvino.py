"""Turns of OpenVINO GenAI."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from outrider.loadtest.load.turns import Case, Turn
from outrider.loadtest.peers.openvino_process import Peer, PeerAnswers, PeerConfig
from outrider.loadtest.peers.ways import OPENVINO, mode
from outrider.measure.chats.chat_request import ChatRequest
from outrider.measure.load.summary import Summary, percentile


def precisions(flags: str) -> tuple[str, str]:
    """Precisions of the KV cache: the peer's default, and that of its sums on a CPU with ``flags`` (``/proc/cpuinfo``).

    The peer keeps a cache in bfloat16 only if it computes in bfloat16.
    """
    return "u8", "bf16" if {"avx512_bf16", "amx_bf16"} & set(flags.split()) else "f32"


def ways(guesses: Sequence[int], caches: Iterable[str], *, draft: bool = False) -> dict[str, PeerConfig]:
    """Ways of running the peer by mode, with each precision of its KV cache.

    Args:
        guesses: guesses of prompt lookup in a step, each number a way; drafts have the lowest.
        caches: precisions of the KV cache.
        draft: whether the peer has a draft model or a head.
    """
    ways = {}
    for kv in caches:
        ways[mode(OPENVINO, f"plain, KV {kv}")] = PeerConfig("plain", kv)
        for count in guesses:
            ways[mode(OPENVINO, f"lookup of {count}, KV {kv}")] = PeerConfig("lookup", kv, count)
        if draft:
            ways[mode(OPENVINO, f"draft of {min(guesses)}, KV {kv}")] = PeerConfig("draft", kv, min(guesses))
    return ways


def run_chats(
    peer: Peer, name: str, config: PeerConfig, case: Case, requests: Sequence[ChatRequest], repeat: int
) -> Turn:
    """Runs one turn of chats in one way; prints a line."""
    answers = peer.answer(
        config, case.concurrency, [chat.text for chat in requests], [chat.max_tokens for chat in requests]
    )
    return turn(name, case, repeat, answers)


def turn(name: str, case: Case, repeat: int, answers: PeerAnswers) -> Turn:
    """The peer's answers as a turn; prints a line. The peer reports no times of single tokens."""
    tokens = sum(map(len, answers.tokens))
    figures: dict[str, Any] = {
        "requests": len(answers.tokens),
        "failed": 0,
        "wall_s": answers.seconds,
        "cached_tokens": 0,
    }
    figures |= {"tokens_per_s": tokens / answers.seconds, "prompt_tokens": percentile(answers.prompt_tokens, 0.5)}
    turn = Turn(case, name, repeat, Summary(**dict.fromkeys(Summary.__struct_fields__, math.nan) | figures))
    print(turn, flush=True)
    return turn
