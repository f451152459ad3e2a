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
    """Of the KV cache: the peer's default, and the one of its sums on a processor with ``flags`` (``/proc/cpuinfo``).

    The peer takes a cache in bfloat16 only where it computes in bfloat16.
    """
    return "u8", "bf16" if {"avx512_bf16", "amx_bf16"} & set(flags.split()) else "f32"


def ways(guesses: Sequence[int], caches: Iterable[str], *, draft: bool = False, chat: bool = True) -> dict[str, How]:
    """Ways of running the peer by mode, with each precision of its KV cache.

    Args:
        guesses: tokens guessed in a step by prompt lookup, each a way of its own; a draft model guesses the fewest.
        caches: precisions of the KV cache.
        draft: whether there is a draft model.
        chat: whether prompts are chats.
    """
    found = {}
    for kv in caches:
        found[mode(OPENVINO, f"plain, KV {kv}")] = How("plain", kv, 0, chat)
        for count in guesses:
            found[mode(OPENVINO, f"lookup of {count}, KV {kv}")] = How("lookup", kv, count, chat)
        if draft:
            found[mode(OPENVINO, f"draft of {min(guesses)}, KV {kv}")] = How("draft", kv, min(guesses), chat)
    return found


def chat(peer: Peer, name: str, how: How, case: Case, asked: Sequence[Asked], repeat: int) -> Turn:
    """The turn of one way; prints a line."""
    spoken = peer.answer(how, case.concurrency, [each.text for each in asked], [each.max_tokens for each in asked])
    return turn(name, case, repeat, spoken)


def turn(name: str, case: Case, repeat: int, spoken: Spoken) -> Turn:
    """What was spoken, as a turn; prints a line. The peer tells no times of single tokens."""
    tokens = sum(map(len, spoken.tokens))
    known: dict[str, Any] = {"requests": len(spoken.tokens), "failed": 0, "wall_s": spoken.seconds, "cached_tokens": 0}
    known |= {"tokens_per_s": tokens / spoken.seconds, "prompt_tokens": percentile(spoken.prompt_tokens, 0.5)}
    made = Turn(case, name, repeat, Summary(**dict.fromkeys(Summary.__struct_fields__, math.nan) | known))
    print(made, flush=True)
    return made
