"""A model that writes calls in Hermes' format, with tokens for its marks, and functions to call."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import AddedToken, decoders, models, pre_tokenizers, trainers

from tests.engine.text.makers import CORPUS, SPECIAL, byte_level, write
from tests.gateway.stack import CONTEXT
from tests.toy_model import save_toy

HERMES = (
    "{% if tools %}<|im_start|>system\n<tools>{% for tool in tools %}\n{{ tool | tojson }}{% endfor %}\n</tools>\n"
    'Say <tool_call>\n{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call><|im_end|>\n{% endif %}'
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
    "{% for call in m.tool_calls or [] %}{% if m.content or not loop.first %}\n{% endif %}"
    '<tool_call>\n{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}\n'
    "</tool_call>"
    "{% endfor %}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
LLAMA = (
    '{% if tools %}Respond in the format {"name": function name, "parameters": dictionary}{% endif %}'
    "{% for m in messages %}{{ m.content }}{% endfor %}"
)
PAINT: dict[str, Any] = {
    "type": "object",
    "properties": {"colour": {"$ref": "#/$defs/Colour"}, "coats": {"enum": [1, 2]}},
    "required": ["colour", "coats"],
    "additionalProperties": False,
    "$defs": {"Colour": {"enum": ["red", "green"]}},
}
TOOLS: Any = [
    {"type": "function", "function": {"name": "paint", "parameters": PAINT}},
    {"type": "function", "function": {"name": "wait"}},
]


def vocabulary(*, silent: bool = False) -> tokenizers.Tokenizer:
    """A byte-level vocabulary with tokens for the marks of calls, which leave text behind unless they are silent."""
    made = byte_level()
    marks = [AddedToken(mark, special=silent) for mark in ("<tool_call>", "</tool_call>")]
    made.add_special_tokens(marks) if silent else made.add_tokens(marks)
    return made


END = 0
"""The end-of-text token of these models."""

BARE_HEAD = '{"name": "paint", "arguments":'


def save_bare(directory: Path) -> Path:
    """Saves a toy target for which the head of a bare call is one token, so that a bias can make it call."""
    made = tokenizers.Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=330, special_tokens=SPECIAL, initial_alphabet=alphabet)
    made.train_from_iterator([*CORPUS, *[BARE_HEAD] * 99], trainer)
    return _save(directory, made, HERMES)


def save_calling(directory: Path, template: str = HERMES, *, silent: bool = False) -> Path:
    """Saves a toy target with the `vocabulary` and a chat template."""
    return _save(directory, vocabulary(silent=silent), template)


def _save(directory: Path, made: tokenizers.Tokenizer, template: str) -> Path:
    save_toy(directory, made.get_vocab_size(), context=CONTEXT)
    config = json.loads((directory / "config.json").read_text()) | {"eos_token_id": END}
    write(directory, made, chat_template=template)
    (directory / "config.json").write_text(json.dumps(config))
    return directory
