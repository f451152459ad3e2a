"""The process that renders chats: a template that takes too much time or memory harms only this process.

    python -m outrider.engine.text.template_process FD NICE MEMORY_BYTES

The first message has ``{"source", "names", "special_tokens"}`` as in `Chat`; the answer is ``{}``. Then each message
with the arguments of `Chat.parts` is answered by ``{"parts"}``. A template or a chat that is refused is answered by
``{"refused"}`` with the reason.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from functools import partial
from typing import Any

from outrider.engine.errors import MissingPackage
from outrider.engine.limited_work import Line, cpu_limit, limit_memory
from outrider.engine.text.chat import Chat
from outrider.engine.text.errors import TextError
from outrider.engine.text.rendering import CPU_S, MOST_CHARACTERS


def main(fd: int, nice: int, memory: int) -> None:
    """Answers until the other end is closed."""
    too_much = f"the chat template takes more than {memory >> 20} MB of memory"
    line = Line(fd, nice)
    try:
        first = json.loads(line.first())
    except EOFError:
        return None
    limit_memory(memory)
    try:
        with cpu_limit(CPU_S):
            chat = Chat(first["source"], first["names"], first["special_tokens"])
    except (TextError, MissingPackage) as error:
        return line.answer({"refused": str(error)})
    except MemoryError:
        return line.answer({"refused": f"{too_much} to compile"})
    line.answer({})
    line.answer_all(partial(_answer, chat, too_much))


def _answer(chat: Chat, too_much: str, message: Mapping[str, Any]) -> Mapping[str, Any]:
    try:
        with cpu_limit(CPU_S):
            parts = chat.parts(**message)
    except TextError as error:
        return {"refused": str(error)}
    except MemoryError:
        return {"refused": f"{too_much} for these messages"}
    if sum(len(part.text) for part in parts) > MOST_CHARACTERS:
        return {"refused": f"the chat template makes a text of more than {MOST_CHARACTERS >> 20} MB of these messages"}
    return {"parts": parts}


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
