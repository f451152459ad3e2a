"""Embeddings are the states that transformers computes, whatever runs beside them."""

from __future__ import annotations

import json
import os
import shutil
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from outrider.engine import LLM, RequestError, SamplingParams, SettingsError
from outrider.engine.models.pooling import pooling_of

TEXTS = ["def parse_args(", "a", "import os\n" * 40, "def parse_args(argv):\n    return argv"]
PIECES = [
    "def f(x):\n    return x\n",
    "The river is wide. ",
    "SELECT a FROM b;\n",
    "Größe, été, 水。",
    '{"a": [1, 2]}\n',
    "x",
]
VARIED = [piece * times for piece in PIECES for times in (1, 2, 3, 5, 12)]


def pooled_directory(directory: Path, made: Path, **modes: bool) -> Path:
    shutil.copytree(directory, made, ignore=shutil.ignore_patterns("*manifest*"))
    (made / "1_Pooling").mkdir()
    (made / "1_Pooling" / "config.json").write_text(json.dumps({"word_embedding_dimension": 32, **modes}))
    return made


def theirs(directory: Path, ids: list[list[int]], *, mean: bool = False) -> NDArray[np.float32]:
    """The embeddings that transformers computes, a text at a time."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from transformers import AutoModel

        model = AutoModel.from_pretrained(directory, dtype=torch.float32).eval()
    with torch.inference_mode():
        states = [model(torch.tensor([each])).last_hidden_state[0] for each in ids]
        pooled = torch.stack([each.mean(0) if mean else each[-1] for each in states])
    return np.asarray(torch.nn.functional.normalize(pooled).numpy())


def embedding_model(directory: Path, tokenizer: Path, *, tie: bool) -> Path:
    """A small model with the files and the names of tensors that Qwen3-Embedding has, with random weights."""
    from transformers import Qwen3Config, Qwen3Model

    torch.manual_seed(3)
    sizes = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "head_dim": 16}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 384, "max_position_embeddings": 512}
    shutil.copytree(tokenizer, directory, ignore=shutil.ignore_patterns("*manifest*", "*.safetensors", "config.json"))
    Qwen3Model(Qwen3Config(**sizes, **heads, tie_word_embeddings=tie)).save_pretrained(directory)
    told = json.loads((directory / "config.json").read_text()) | {"architectures": ["Qwen3ForCausalLM"]}
    (directory / "config.json").write_text(json.dumps(told))
    (directory / "1_Pooling").mkdir()
    modes = dict.fromkeys(
        ("cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens", "weightedmean_tokens"), False
    )
    named = {f"pooling_mode_{mode}": on for mode, on in (modes | {"lasttoken": True}).items()}
    (directory / "1_Pooling" / "config.json").write_text(
        json.dumps({"word_embedding_dimension": 64, **named, "include_prompt": True})
    )
    return directory


def cosines(ours: NDArray[np.float32], others: NDArray[np.float32]) -> NDArray[np.float32]:
    assert ours.shape == others.shape
    return np.asarray((ours * others).sum(1))


def test_the_last_state_is_the_embedding(llm: LLM, directory: Path) -> None:
    made = llm.embed(TEXTS)
    ids = [llm.tokenizer.encode(text, parse_special=True) for text in TEXTS]
    assert made.dtype == np.float32
    assert cosines(made, theirs(directory, ids)).min() > 0.9999
    assert np.allclose(np.linalg.norm(made, axis=1), 1)
    assert llm.embed(ids[2])[0].tolist() == made[2].tolist()
    assert abs(made[0] @ made[3]) < 0.9999


def test_a_mean_is_over_all_tokens_though_pages_hold_some(directory: Path, tmp_path: Path) -> None:
    place = pooled_directory(directory, tmp_path / "mean", pooling_mode_mean_tokens=True, include_prompt=True)
    with LLM(place, drafters=(), page_size=8, prefill_rows=16, max_rows=80) as llm:
        llm.generate(TEXTS[2], SamplingParams(max_tokens=2, temperature=0))
        made = llm.embed(TEXTS)
        ids = [llm.tokenizer.encode(text, parse_special=True) for text in TEXTS]
        assert cosines(made, theirs(place, ids, mean=True)).min() > 0.9999
        assert np.allclose(llm.embed(TEXTS), made, atol=1e-6)


def test_answers_beside_embeddings_are_the_same(llm: LLM) -> None:
    asked = SamplingParams(max_tokens=60, seed=5, ignore_eos=True)
    (alone,) = llm.generate("def f(", asked)
    vectors = llm.embed(TEXTS)
    with llm.stream("def f(", asked) as stream:
        next(stream)
        beside = llm.embed(TEXTS)
        assert stream.result().token_ids == alone.token_ids
    assert beside.tolist() == vectors.tolist()


def test_a_text_may_fill_the_context_and_not_more(llm: LLM) -> None:
    assert llm.embed([[7] * llm.context_length]).shape == (1, 32)
    with pytest.raises(RequestError, match="must leave room"):
        llm.embed([[7] * (llm.context_length + 1)])
    with pytest.raises(RequestError, match="at least one token"):
        llm.embed([[]])
    assert llm.embed([]).shape == (0, 32)


@pytest.mark.parametrize("tie", [True, False], ids=["tied", "no output layer"])
def test_a_model_in_the_form_of_qwen3_embedding_embeds(directory: Path, tmp_path: Path, tie: bool) -> None:
    place = embedding_model(tmp_path / "model", directory, tie=tie)
    with LLM(place, drafters=()) as llm:
        ids = [llm.tokenizer.encode(text, parse_special=True) for text in TEXTS]
        assert cosines(llm.embed(TEXTS), theirs(place, ids)).min() > 0.9999


@pytest.mark.timeout(900)
@pytest.mark.parametrize("mode", ["lasttoken", "mean_tokens"])
def test_a_real_model_s_embeddings_in_bfloat16_are_those_of_transformers_in_float32(tmp_path: Path, mode: str) -> None:
    """TEST_MODEL names the directory of a model."""
    if not (named := os.environ.get("TEST_MODEL", "")):
        pytest.skip("TEST_MODEL names no real model")
    place, real = tmp_path / "model", Path(named)
    place.mkdir()
    for file in real.iterdir():
        if "manifest" not in file.name:
            (place / file.name).symlink_to(file)
    (place / "1_Pooling").mkdir()
    (place / "1_Pooling" / "config.json").write_text(json.dumps({f"pooling_mode_{mode}": True}))
    with LLM(place, drafters=(), dtype="bfloat16") as llm:
        made = llm.embed(VARIED)
        ids = [llm.tokenizer.encode(text, parse_special=True) for text in VARIED]
    others = theirs(real, ids, mean=mode == "mean_tokens")
    print(f"{mode}: least cosine {cosines(made, others).min():.6f}")
    assert cosines(made, others).min() >= 0.999


@pytest.mark.parametrize(
    ("modes", "pooling"),
    [
        ({"pooling_mode_lasttoken": True, "pooling_mode_mean_tokens": False}, "last"),
        ({"pooling_mode_mean_sqrt_len_tokens": True}, "mean"),
        ({"pooling_mode": "lasttoken"}, "last"),
    ],
)
def test_the_pooling_is_the_model_s(tmp_path: Path, modes: dict[str, bool], pooling: str) -> None:
    (tmp_path / "empty").mkdir()
    assert pooling_of(pooled_directory(tmp_path / "empty", tmp_path / "made", **modes)) == pooling
    assert pooling_of(tmp_path / "empty") == "last"


def test_another_pooling_is_refused(directory: Path, tmp_path: Path) -> None:
    place = pooled_directory(directory, tmp_path / "both", pooling_mode_cls_token=True, pooling_mode_mean_tokens=True)
    with pytest.raises(SettingsError, match="must ask for one pooling: lasttoken or mean"):
        LLM(place)
