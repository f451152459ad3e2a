"""Bits per byte of a model on a text."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from outrider.benches.models import quality
from outrider.benches.models.quality import bits_per_byte
from outrider.engine.errors import ModelError
from outrider.engine.models.llama import LlamaModel

from tests.engine.models.runs import whole
from tests.toy_model import save_toy

BYTES = [b"", b"a", b"bc", *[b"def"] * 47]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> LlamaModel:
    return LlamaModel.load(save_toy(tmp_path_factory.mktemp("toy"), 50), dtype="float32")


def test_each_window_is_predicted_by_itself_behind_its_first_token(model: LlamaModel) -> None:
    ids = [number * 7 % 50 for number in range(200)]
    bits, size = 0.0, 0
    for window in (ids[:150], ids[150:]):
        likely = whole(model, torch.tensor(window)).log_softmax(-1)
        bits -= sum(likely[place, token].item() for place, token in enumerate(window[1:])) / math.log(2)
        size += sum(len(BYTES[token]) for token in window[1:])
    assert bits_per_byte(model, ids, BYTES, 150) == pytest.approx(bits / size)


def test_what_cannot_be_measured_is_refused(model: LlamaModel) -> None:
    with pytest.raises(ModelError, match=r"257 .* 256"):
        bits_per_byte(model, [1, 2], BYTES, 257)
    with pytest.raises(ModelError, match="too short"):
        bits_per_byte(model, [1], BYTES, 8)


def test_the_command_prints_one_line_with_the_settings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = tmp_path / "text"
    text.write_text("def add(a, b):\n    return a + b\n" * 4)
    quality.main(
        ["--text", str(text), "--tokens", "30", "--dtype", "float32", "--kv-dtype", "float32", "--threads", "1"]
    )
    printed = capsys.readouterr().out
    assert 0 < float(printed.split()[0]) < 8
    assert printed.endswith("weights torch.float32, quantization none, keys and values torch.float32\n")
    with pytest.raises(SystemExit, match="kv_dtype"):
        quality.main(["--text", str(text), "--kv-dtype", "int3"])
