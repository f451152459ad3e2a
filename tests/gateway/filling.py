"""A mesh whose model fills in before suffixes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from tokenizers import AddedToken

from tests.engine.text.makers import CHATML, byte_level, write
from tests.gateway.parameters import INFILLING
from tests.gateway.stack import Stack, stack
from tests.toy_model import save_toy

CONTEXT = 512
SEPARATOR = "<|file_sep|>"


@contextmanager
def filling(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Such a mesh, whose gateway takes templates of requests."""
    directory, made = tmp_path_factory.mktemp("models") / "toy", byte_level()
    made.add_tokens([AddedToken(mark, special=False, normalized=False) for mark in (*INFILLING, SEPARATOR)])
    save_toy(directory, made.get_vocab_size(), context=CONTEXT)
    config = json.loads((directory / "config.json").read_text()) | {"eos_token_id": 0}
    write(directory, made, chat_template=CHATML)
    (directory / "config.json").write_text(json.dumps(config))
    with stack(directory, tmp_path_factory.mktemp("logs"), stores=True) as started:
        started.add("gateway", port=started.port, nats_door="false", chat_templates="true")
        started.add_model("tokenizer")
        started.add_model("verifier", instance="verifier", drafters='["ngram", "suffix"]')
        started.wait_ready()
        yield started
