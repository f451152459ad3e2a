"""Who is told that weights of eight bits would be quicker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from outrider.engine.models.int8_gain import int8_hint
from outrider.engine.models.llama import LlamaModel
from outrider.native.levels import supported_levels
from outrider.native.library import library
from transformers import LlamaConfig, LlamaForCausalLM

_LEVELS = [level.name for level in supported_levels()]
pytestmark = pytest.mark.skipif("avx2" not in _LEVELS, reason="needs a CPU with AVX2")


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("model")
    sizes = {"hidden_size": 256, "intermediate_size": 128, "num_attention_heads": 4, "num_hidden_layers": 1}
    LlamaForCausalLM(LlamaConfig(vocab_size=64, **sizes)).to(torch.bfloat16).save_pretrained(made)
    return made


@pytest.fixture(autouse=True)
def loaded_anew() -> Iterator[None]:
    library.cache_clear()
    yield
    library.cache_clear()


def hint(directory: Path, monkeypatch: pytest.MonkeyPatch, level: str = "avx2", worth: float = 0.0, **how: Any) -> str:
    """The hint for a model of any size."""
    monkeypatch.setenv("OUTRIDER_NATIVE_LEVEL", level)
    return int8_hint(LlamaModel.load(directory, **how), least_bytes=0, worth=worth)


def test_16_bits_without_instructions_for_them_are_measured_against_eight(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = hint(directory, monkeypatch)
    assert told.startswith("This CPU has no instructions for bfloat16: with verifier.quantization = int8")
    assert hint(directory, monkeypatch, worth=1e9) == ""


def test_a_small_model_says_nothing(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTRIDER_NATIVE_LEVEL", "avx2")
    assert int8_hint(LlamaModel.load(directory), worth=0.0) == ""


@pytest.mark.parametrize("how", [{"dtype": "float32"}, {"quantization": "int8"}])
def test_other_weights_say_nothing(directory: Path, monkeypatch: pytest.MonkeyPatch, how: dict[str, Any]) -> None:
    assert hint(directory, monkeypatch, **how) == ""


@pytest.mark.parametrize("level", [name for name in _LEVELS if name.startswith(("amx", "avx512"))])
def test_levels_of_512_bits_say_nothing(directory: Path, monkeypatch: pytest.MonkeyPatch, level: str) -> None:
    assert hint(directory, monkeypatch, level) == ""
