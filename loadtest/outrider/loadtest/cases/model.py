"""A copy of a model whose chat template opens thoughts."""

from __future__ import annotations

import json
from pathlib import Path

_TEMPLATE, _CONFIG = "chat_template.jinja", "tokenizer_config.json"
_OPENS = (
    "{%- if add_generation_prompt and enable_thinking is defined %}"
    "{{- '<think>\\n' if enable_thinking else '<think>\\n\\n</think>\\n\\n' }}{%- endif %}"
)
"""As Qwen3's: a thought is opened, or an empty one is closed; unless it is told, the answer may do either."""


def thinking(model: Path, copy: Path) -> Path:
    """``model``, a Hugging Face directory, if its template knows thoughts; else ``copy``, with links to its files."""
    template = model / _TEMPLATE
    config = json.loads((model / _CONFIG).read_text())
    source = template.read_text() if template.exists() else config["chat_template"]
    if "<think>" in source:
        return model
    copy.mkdir(parents=True)
    for file in model.iterdir():
        if file.name not in (_TEMPLATE, "outrider-manifest.json"):
            (copy / file.name).symlink_to(file.resolve())
    (copy / _TEMPLATE).write_text(source.rstrip() + _OPENS)
    return copy
