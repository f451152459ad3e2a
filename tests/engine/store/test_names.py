"""Names of models."""

from __future__ import annotations

from pathlib import Path

import pytest
from outrider.engine.errors import ModelError
from outrider.engine.models import pocket
from outrider.engine.store import is_path, locate, served_name
from outrider.engine.store.names import ModelName


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("org/model", ModelName("org/model")),
        ("org/model@v1.0", ModelName("org/model", revision="v1.0")),
        ("org/model@refs/pr/1", ModelName("org/model", revision="refs/pr/1")),
        ("org/model:Q4_K_M@v1", ModelName("org/model", "Q4_K_M", "v1")),
        ("org/model:a/b.gguf", ModelName("org/model", "a/b.gguf")),
    ],
)
def test_a_name_is_read_as_it_is_written(model: str, name: ModelName) -> None:
    assert ModelName.parse(model) == name
    assert str(name) == model


@pytest.mark.parametrize(
    "model",
    ["./org/model", "../model", "/org/model", "~/model", "model", "a/b/c", "org/model@../x", "org/a..b", "", "a b/c"],
)
def test_what_has_no_form_of_a_name_is_a_path(model: str) -> None:
    assert is_path(model)


def test_a_path_that_exists_wins_over_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "org" / "model").mkdir(parents=True)
    assert not is_path("org/model")
    monkeypatch.chdir(tmp_path)
    assert is_path("org/model")
    assert locate("org/model") == Path("org/model")


def test_requests_ask_for_a_repository_by_its_full_name_and_for_a_path_by_its_last_part(tmp_path: Path) -> None:
    assert served_name("Qwen/Qwen2.5-Coder@v1") == "Qwen/Qwen2.5-Coder"
    assert served_name("Qwen/Qwen2.5-GGUF:Q4_K_M") == "Qwen/Qwen2.5-GGUF:Q4_K_M"
    assert served_name(str(tmp_path / "tiny")) == "tiny"
    assert served_name("pocket") == "pocket"


def test_pocket_is_each_of_the_shipped_models() -> None:
    assert locate("pocket") == pocket.directory("target")
    assert locate("pocket", "medusa") == pocket.directory("medusa")


def test_a_path_without_a_model_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=f"there is no model in {tmp_path}/none"):
        locate(f"{tmp_path}/none")
