"""A toy model that thinks in front of its answers."""

from __future__ import annotations

import json
from pathlib import Path

from tokenizers import AddedToken

from tests.engine.text.makers import byte_level, write
from tests.toy_model import save_toy

START, END = "<think>", "</think>"
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.reasoning_content %}<think>\n{{ m.reasoning_content }}\n</think>\n\n{% endif %}{{ m.content }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{{ reasoning_effort }}"
    "{% if enable_thinking is defined %}<think>\n{% if not enable_thinking %}\n</think>\n\n{% endif %}{% endif %}"
    "{% endif %}"
)
"""As Qwen3's: it opens a thought, or closes an empty one, where it is told whether to think; else answers may."""


def save_thinking(directory: Path, template: str = TEMPLATE, *, tokens: bool = True, special: bool = False) -> Path:
    """Saves a toy target; its marks are ``tokens``, which are ``special`` or leave text behind, or mere text."""
    made = byte_level()
    if tokens:
        marks = [AddedToken(text, special=special) for text in (START, END)]
        made.add_special_tokens(marks) if special else made.add_tokens(marks)
    save_toy(directory, made.get_vocab_size(), context=1024)
    config = json.loads((directory / "config.json").read_text()) | {"eos_token_id": 0}
    write(directory, made, chat_template=template)
    (directory / "config.json").write_text(json.dumps(config))
    return directory
