"""Embeddings are the states that transformers computes, whatever runs beside them."""

from __future__ import annotations

import json
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
