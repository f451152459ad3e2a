"""The process in which definitions of grammars are tried: what kills a compiler kills this one.

    python -m outrider.verifier.logits.grammar_process FD TOKENIZER VOCABULARY EOS_IDS

It answers over a connection of multiprocessing's, at first with ``{}`` and then to each ``{"kind", "text"}`` with
``{"definition"}``, or with ``{"refused"}``, the reason. It ends with the connection.
"""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import sys
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING

from outrider.verifier.logits.deep_threads import TRIED_BYTES, in_deep_thread
from outrider.verifier.logits.grammar_definitions import brief, definition, error_of, load_tokenizer, make_matcher

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

CPU_S = 1.0
"""Most CPU time that a trial takes."""
MEMORY_BYTES = 512 << 20
"""Most memory that a trial takes, beyond what the process has at its start and the stack."""
_NICE = 5
_WALKS, _STEPS = 2, 16


def main(fd: int, tokenizer: str, vocabulary: int, eos_ids: list[int]) -> None:
    """Answers until the other end is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(_NICE)
    asked: Connection[bytes, bytes] = Connection(fd)
    try:
        loaded = load_tokenizer(Path(tokenizer), vocabulary, eos_ids)
    except (ImportError, ValueError) as error:
        return _answer(asked, {"refused": str(error)})
    _limit_memory()
    _answer(asked, {})
    while True:
        try:
            message = json.loads(asked.recv_bytes())
        except EOFError:
            return None
        _answer(asked, _tried(partial(_try, loaded, message["kind"], message["text"])))


def _tried(work: Callable[[], str]) -> dict[str, str]:
    """What came of a trial; the process dies at the limit of its CPU time."""
    signal.setitimer(signal.ITIMER_PROF, CPU_S)
    try:
        return {"definition": in_deep_thread(work, TRIED_BYTES).result()}
    except ValueError as error:
        return {"refused": brief(error)}
    except MemoryError:
        os.abort()
    except RuntimeError:  # no thread could be started
        sys.exit(1)
    except BaseException as error:  # llguidance's own panics are no `Exception`
        return {"refused": f"the compiler failed: {type(error).__name__}"}
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _try(tokenizer: LLTokenizer, kind: str, text: str) -> str:
    read = definition(kind, text)
    matcher = make_matcher(tokenizer, read)
    for seed in range(_WALKS):
        _walk(matcher.deep_copy(), random.Random(seed))
    return read


def _walk(matcher: LLMatcher, dice: random.Random) -> None:
    """Goes a few tokens along what the grammar allows; `ValueError` where the matcher cannot."""
    for _ in range(_STEPS):
        bits = int.from_bytes(matcher.compute_bitmask(), "little")
        if matcher.is_error():
            raise ValueError(error_of(matcher))
        if not bits or matcher.is_stopped():
            return
        skipped = dice.randrange(bits.bit_length())
        rest = (bits >> skipped) << skipped
        matcher.consume_token((rest & -rest).bit_length() - 1)


def _limit_memory() -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + TRIED_BYTES + MEMORY_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _answer(asked: Connection[bytes, bytes], said: dict[str, str]) -> None:
    asked.send_bytes(json.dumps(said).encode())


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), json.loads(sys.argv[4]))
