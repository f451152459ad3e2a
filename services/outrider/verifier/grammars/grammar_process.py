"""The process that tries definitions of grammars: a definition that kills the compiler kills only this process.

    python -m outrider.verifier.grammars.grammar_process FD VOCABULARY EOS_IDS

The process answers over a `multiprocessing` connection: to the contents of a ``tokenizer.json``, which come first,
``{}``, then to each ``{"kind", "text"}`` either ``{"definition"}`` or ``{"refused"}`` with the reason. It ends when the
connection closes.
"""

from __future__ import annotations

import json
import os
import random
import sys
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from outrider.engine.limited_work import Line, cpu_limit, limit_memory
from outrider.engine.logits.deep_threads import TRIED_BYTES, in_deep_thread
from outrider.engine.logits.grammar_definitions import brief, definition, error_of, load_tokenizer, make_matcher

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

CPU_S = 1.0
"""Most CPU seconds of a trial."""
MEMORY_BYTES = 512 << 20
"""Most memory of a trial, beyond the process's memory at start and the stack."""
_NICE = 5
_WALKS, _STEPS = 2, 16


def main(fd: int, vocabulary: int, eos_ids: list[int]) -> None:
    """Answers until the other end is closed."""
    line = Line(fd, _NICE)
    try:
        loaded = load_tokenizer(line.first(), vocabulary, eos_ids)
    except EOFError:
        return None
    except (ImportError, ValueError) as error:
        return line.answer({"refused": str(error)})
    limit_memory(TRIED_BYTES + MEMORY_BYTES)
    line.answer({})
    line.answer_all(lambda message: _tried(partial(_try, loaded, message["kind"], message["text"])))


def _tried(work: Callable[[], str]) -> dict[str, str]:
    """The answer to a trial; the process dies if the trial exceeds its CPU time."""
    try:
        with cpu_limit(CPU_S):
            return {"definition": in_deep_thread(work, TRIED_BYTES).result()}
    except ValueError as error:
        return {"refused": brief(error)}
    except MemoryError:
        os.abort()
    except RuntimeError:  # no thread could be started
        sys.exit(1)
    except BaseException as error:  # a panic of llguidance is no `Exception`
        return {"refused": f"the compiler failed: {type(error).__name__}"}


def _try(tokenizer: LLTokenizer, kind: str, text: str) -> str:
    llg_definition = definition(kind, text)
    matcher = make_matcher(tokenizer, llg_definition)
    for seed in range(_WALKS):
        _walk(matcher.deep_copy(), random.Random(seed))
    return llg_definition


def _walk(matcher: LLMatcher, dice: random.Random) -> None:
    """Follows a few random allowed tokens; `ValueError` if the matcher fails."""
    for _ in range(_STEPS):
        bits = int.from_bytes(matcher.compute_bitmask(), "little")
        if matcher.is_error():
            raise ValueError(error_of(matcher))
        if not bits or matcher.is_stopped():
            return
        skipped = dice.randrange(bits.bit_length())
        rest = (bits >> skipped) << skipped
        matcher.consume_token((rest & -rest).bit_length() - 1)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), json.loads(sys.argv[3]))
