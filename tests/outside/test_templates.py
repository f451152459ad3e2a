"""llama.cpp's collection of chat templates: the texts of chats beside those that transformers renders."""

from __future__ import annotations

from itertools import product
from pathlib import Path

from outrider.engine.text import TextError
from outrider.engine.text import chat as ours
from outrider.engine.text.messages import Form, normal_messages
from transformers.utils.chat_template_utils import render_jinja_template

from tests.outside.archives import members
from tests.outside.chats import CHATS, Chat, Message
from tests.outside.tally import Tally

_NAMES = {"bos_token": "<s>", "eos_token": "</s>"}
_SPECIAL = ["<s>", "</s>", "<|im_start|>", "<|im_end|>"]
_FORMS = sorted((Form(*each) for each in product([False, True], repeat=len(Form._fields))), key=sum)
_IN_PYTHON_S_WAY = "{'city': 'Paris'"


def test_chats_are_those_of_transformers() -> None:
    tally = Tally("llama.cpp's templates")
    for path, data in members("llama-cpp-python", "*/llama.cpp/models/templates/*.jinja").items():
        source = data.decode()
        template = ours.Chat(source, _NAMES, _SPECIAL)
        for name, chat in CHATS.items():
            tally.add(_kind(template, source, chat), f"{Path(path).stem}: {name}")
    # Refused are chats that transformers refuses as well: most of their templates need tools in every chat. Formed are
    # also all calls of Kimi K2, whose ids have numbers that clients do not know.
    tally.close(formed=18, rescued=11, refused=90)


def _kind(template: ours.Chat, source: str, chat: Chat) -> str:
    """How a chat's text compares with that of transformers.

    right: it is the same. formed: it is that of another form of the messages, which shows more with this template.
    rescued: the same, where transformers refuses the normal form. refused: by both. Else it is wrong.
    """
    expected = _expected(source, chat, chat.normal)
    try:
        text = "".join(part.text for part in template.parts(chat.messages, chat.tools, True, chat.variables))
    except TextError:
        return "refused" if expected is None else "wrong"
    if text == expected:
        return "right"
    formed = (_expected(source, chat, normal_messages(chat.messages, form)) for form in _FORMS)
    if text not in formed or _IN_PYTHON_S_WAY in text:
        return "wrong"
    return "rescued" if expected is None else "formed"


def _expected(source: str, chat: Chat, messages: list[Message]) -> str | None:
    """What transformers makes of messages; None if the template refuses them."""
    more = _NAMES | (chat.variables or {})
    try:
        texts, _ = render_jinja_template([messages], chat.tools, None, source, add_generation_prompt=True, **more)
    except Exception:  # a template may raise anything
        return None
    return str(texts[0])
