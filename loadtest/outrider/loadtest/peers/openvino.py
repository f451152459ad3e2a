"""Turns of OpenVINO GenAI."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from outrider.loadtest.chats.asked import Asked
from outrider.loadtest.load.summary import Summary, percentile
from outrider.loadtest.load.turns import Case, Turn
from outrider.loadtest.peers.openvino_process import How, Peer, Spoken
from outrider.loadtest.peers.ways import OPENVINO, mode


def precisions(flags: str) -> tuple[str, str]:
    """Precisions of the KV cache: the peer's default, and that of its sums on a CPU with ``flags`` (``/proc/cpuinfo``).

    The peer keeps a cache in bfloat16 only if it computes in bfloat16.
    """
    return "u8", "bf16" if {"avx512_bf16", "amx_bf16"} & set(flags.split()) else "f32"


def ways(guesses: Sequence[int], caches: Iterable[str], *, draft: bool = False, chat: bool = True) -> dict[str, How]:
    """Ways of running the peer by mode, with each precision of its KV cache.

    Args:
        guesses: guesses of prompt lookup in a step, each number a way; a draft model uses the lowest number.
        caches: precisions of the KV cache.
        draft: whether the peer has a draft model.
        chat: whether prompts are chats.
    """
    ways = {}
    for kv in caches:
        ways[mode(OPENVINO, f"plain, KV {kv}")] = How("plain", kv, 0, chat)
        for count in guesses:
            ways[mode(OPENVINO, f"lookup of {count}, KV {kv}")] = How("lookup", kv, count, chat)
        if draft:
            ways[mode(OPENVINO, f"draft of {min(guesses)}, KV {kv}")] = How("draft", kv, min(guesses), chat)
    return ways


def chat(peer: Peer, name: str, how: How, case: Case, asked: Sequence[Asked], repeat: int) -> Turn:
    """Runs one turn of chats in one way; prints a line."""
    spoken = peer.answer(how, case.concurrency, [chat.text for chat in asked], [chat.max_tokens for chat in asked])
    return turn(name, case, repeat, spoken)


def turn(name: str, case: Case, repeat: int, spoken: Spoken) -> Turn:
    """The peer's answers as a turn; prints a line. The peer reports no times of single tokens."""
    tokens = sum(map(len, spoken.tokens))
    figures: dict[str, Any] = {
        "requests": len(spoken.tokens),
        "failed": 0,
        "wall_s": spoken.seconds,
        "cached_tokens": 0,
    }
    figures |= {"tokens_per_s": tokens / spoken.seconds, "prompt_tokens": percentile(spoken.prompt_tokens, 0.5)}
    turn = Turn(case, name, repeat, Summary(**dict.fromkeys(Summary.__struct_fields__, math.nan) | figures))
    print(turn, flush=True)
    return turn
