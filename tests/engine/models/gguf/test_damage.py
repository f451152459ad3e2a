"""Files damaged at random are refused, never with another error, and cost little memory.

FUZZ_COUNT sets how many are tried.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import torch
from gguf import GGMLQuantizationType, GGUFWriter
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel, Qwen2Config, Qwen2ForCausalLM

from tests.engine.models.checkpoints import SHAPE
from tests.engine.models.gguf.files import write_model
from tests.engine.models.gguf.pieces import pieces
from tests.engine.models.gguf.words import TEMPLATE, add_byte_level, add_sentence_piece
from tests.engine.text.makers import byte_level

_COUNT = int(os.environ.get("FUZZ_COUNT", "500"))
_MOST_MEGABYTES = 200
_SIZES = SHAPE | {"vocab_size": 640, "hidden_size": 64, "num_attention_heads": 4, "intermediate_size": 96}


def test_files_damaged_at_random_load_or_are_refused(tmp_path: Path) -> None:
    torch.manual_seed(0)
    qwen: PreTrainedModel = Qwen2ForCausalLM(Qwen2Config(**_SIZES))
    llama: PreTrainedModel = LlamaForCausalLM(LlamaConfig(**_SIZES, tie_word_embeddings=True))

    def byte_words(writer: GGUFWriter) -> None:
        roles = {"bos_token_id": 0, "eos_token_id": 2, "chat_template": TEMPLATE, "add_bos_token": True}
        add_byte_level(writer, byte_level(), "qwen2", **roles)

    def spaced_words(writer: GGUFWriter) -> None:
        add_sentence_piece(writer, pieces(), bos_token_id=1, eos_token_id=2, unknown_token_id=0)

    write_model(tmp_path / "bytes.gguf", qwen, GGMLQuantizationType.Q5_0, byte_words)
    write_model(tmp_path / "pieces.gguf", llama, GGMLQuantizationType.Q8_0, spaced_words)
    command = [sys.executable, "-m", "tests.engine.models.gguf.fuzz", str(tmp_path), "1", str(_COUNT)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["loaded"] + found["refused"] == _COUNT
    assert min(found["loaded"], found["refused"]) > _COUNT / 20
    assert found["megabytes"] < _MOST_MEGABYTES
