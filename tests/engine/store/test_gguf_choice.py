"""Which GGUF file of a repository a name means."""

from __future__ import annotations

from pathlib import Path

import pytest
from outrider.engine.errors import ModelError
from outrider.engine.store.listing import gguf_file
from outrider.engine.store.names import ModelName

from tests.hub import COMMIT, Hub, Repository, environment, outrider, python

FILES = ["README.md", "tiny-Q4_K_M.gguf", "tiny-Q4_K_S.gguf", "big/tiny.f16.gguf", "mmproj-f16.gguf"]


def chosen(model: str, files: list[str] = FILES) -> str | None:
    return gguf_file(files, ModelName.parse(model))


@pytest.mark.parametrize(
    ("model", "file"),
    [
        ("org/tiny:Q4_K_M", "tiny-Q4_K_M.gguf"),
        ("org/tiny:q4_k_s", "tiny-Q4_K_S.gguf"),
        ("org/tiny:F16@v1", "big/tiny.f16.gguf"),
        ("org/tiny:tiny-Q4_K_M.gguf", "tiny-Q4_K_M.gguf"),
        ("org/tiny:big/tiny.f16.gguf", "big/tiny.f16.gguf"),
    ],
)
def test_a_file_is_named_by_the_end_of_its_name_or_by_its_path(model: str, file: str) -> None:
    assert chosen(model) == file


def test_one_file_alone_needs_no_name() -> None:
    assert chosen("org/tiny", ["a.gguf", "mmproj-a.gguf"]) == "a.gguf"


def test_safetensors_are_meant_unless_a_file_is_named() -> None:
    files = ["model.safetensors", "a-Q8_0.gguf"]
    assert chosen("org/tiny", files) is None
    assert chosen("org/tiny:Q8_0", files) == "a-Q8_0.gguf"


@pytest.mark.parametrize(
    ("model", "files", "sentence"),
    [
        (
            "org/tiny",
            FILES,
            r"several GGUF files: name one of org/tiny:big/tiny\.f16\.gguf, org/tiny:tiny-Q4_K_M\.gguf, ",
        ),
        ("org/tiny:Q5_K_M", FILES, r"no GGUF file Q5_K_M: name one of org/tiny:big/"),
        ("org/tiny:F16", ["a/x-f16.gguf", "b/x-f16.gguf"], r"several GGUF files of F16: name one of org/tiny:a/x-f16"),
        ("org/tiny:F16", ["x-f16-00001-of-00002.gguf"], r"in pieces, which are not read; llama-gguf-split merges them"),
    ],
)
def test_a_choice_that_is_not_clear_lists_what_there_is(model: str, files: list[str], sentence: str) -> None:
    with pytest.raises(ModelError, match=sentence):
        chosen(model, files)


def test_the_chosen_file_alone_is_pulled_and_listed(hub: Hub, tmp_path: Path) -> None:
    variables = environment(hub, tmp_path)
    hub.repositories["org/quants"] = Repository(
        {"t-Q4_0.gguf": b"four", "t-Q8_0.gguf": b"eight!", "config.json": b"{}"}
    )
    refused = outrider(variables, "models", "pull", "org/quants")
    assert refused.returncode == 1
    assert "name one of org/quants:t-Q4_0.gguf, org/quants:t-Q8_0.gguf" in refused.stderr
    pulled = outrider(variables, "models", "pull", "org/quants:q8_0")
    name, place = pulled.stdout.splitlines()
    assert name == f"org/quants:q8_0@{COMMIT}"
    assert Path(place).read_bytes() == b"eight!"
    assert [path.name for path in Path(place).parent.iterdir()] == ["t-Q8_0.gguf"]
    assert "org/quants:t-Q8_0.gguf" in outrider(variables, "models", "list").stdout
    code = "from outrider.engine.store import locate; print(locate('org/quants:Q8_0'))"
    assert python({**variables, "HF_HUB_OFFLINE": "1"}, code).stdout.strip() == place
