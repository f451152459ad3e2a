"""The shipped models, as transformers loads them."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from outrider.engine.models import pocket
from safetensors.torch import load_file

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:transformers")

# Written for this test in the library's manner; it is in no training file.
SNIPPET = '''

class Window:
    """A view of the last items of a stream."""

    def __init__(self, size):
        if size < 1:
            raise ValueError("size must be at least 1")
        self.size = size
        self._items = []

    def push(self, item):
        self._items.append(item)
        if len(self._items) > self.size:
            self._items.pop(0)

    def __len__(self):
        return len(self._items)
'''


def load(name: str) -> tuple[Any, Any]:
    transformers = pytest.importorskip("transformers")
    folder = pocket.directory(name)  # type: ignore[arg-type]
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    return model.eval(), transformers.AutoTokenizer.from_pretrained(folder)


def loss(name: str, text: str) -> float:
    model, tokenizer = load(name)
    ids = tokenizer(text, return_tensors="pt").input_ids
    with torch.no_grad():
        return float(model(ids, labels=ids).loss)


def test_the_target_predicts_unseen_code_far_better_than_chance() -> None:
    assert loss("target", SNIPPET) < 0.4 * math.log(4096)


def test_the_draft_predicts_unseen_code_better_than_chance_and_worse_than_the_target() -> None:
    assert loss("target", SNIPPET) < loss("draft", SNIPPET) < 0.6 * math.log(4096)


def generate(prompt: str, **options: Any) -> list[int]:
    model, tokenizer = load("target")
    torch.manual_seed(0)
    ids = tokenizer(prompt, return_tensors="pt")
    out = model.generate(**ids, max_new_tokens=96, **options)
    return list(out[0, ids.input_ids.shape[1] :].tolist())


def distinct(ids: list[int], size: int = 4) -> float:
    """Share of the runs of `size` tokens that are unlike every other."""
    runs = [tuple(ids[i : i + size]) for i in range(len(ids) - size + 1)]
    return len(set(runs)) / len(runs)


def test_a_sampled_completion_hardly_repeats() -> None:
    ids = generate("def parse_args(", do_sample=True, temperature=0.8, top_k=0)
    assert distinct(ids) > 0.8, ids


@pytest.mark.parametrize("text", ["", "naïve → 数 🐍\u200d\x00", "\r\n\t  x  \n", "<|endoftext|", "e\u0301\ufffd" * 3])
def test_the_tokenizer_gives_back_any_text(text: str) -> None:
    _, tokenizer = load("draft")
    assert tokenizer.decode(tokenizer(text).input_ids) == text


def test_both_models_have_the_same_tokenizer_and_end_token() -> None:
    target, draft = pocket.directory("target"), pocket.directory("draft")
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        assert (target / name).read_bytes() == (draft / name).read_bytes()
    _, tokenizer = load("draft")
    end = json.loads((target / "generation_config.json").read_text())["eos_token_id"]
    assert tokenizer.convert_tokens_to_ids("<|endoftext|>") == end == tokenizer.eos_token_id


def test_the_chat_template_opens_the_assistants_turn() -> None:
    _, tokenizer = load("draft")
    text = tokenizer.apply_chat_template(
        [{"role": "user", "content": "hello"}], tokenize=False, add_generation_prompt=True
    )
    assert text == "<|user|>\nhello<|end|>\n<|assistant|>\n"


def test_the_heads_are_in_the_published_layout_with_the_targets_output_layer() -> None:
    folder: Path = pocket.directory("medusa")
    config = json.loads((folder / "config.json").read_text())
    tensors = load_file(folder / "medusa_lm_head.safetensors")
    wanted = {
        f"{head}.{layer}.linear.{part}"
        for head in range(config["medusa_num_heads"])
        for layer in range(config["medusa_num_layers"])
        for part in ("weight", "bias")
    }
    assert set(tensors) == wanted
    assert config["medusa_tie_lm_head"] is True
    assert (folder / config["base_model_name_or_path"] / "config.json").exists()
