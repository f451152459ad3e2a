"""Files that change between two loads."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from outrider.engine.errors import ModelError
from outrider.engine.models import pocket
from outrider.engine.store import check
from outrider.engine.store.integrity import renew, verify

from tests.hub import Hub, environment, python

MANIFEST = "outrider-manifest.json"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Outrider's cache directory."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "outrider"


@pytest.fixture
def model(toy: Path, tmp_path: Path) -> Path:
    """A model that was loaded once."""
    place = Path(shutil.copytree(toy, tmp_path / "model"))
    check(place, "size")
    return place


def flip(path: Path, keep_time: bool = False) -> None:
    """Changes a byte in the middle of a file."""
    before = path.stat()
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    if keep_time:
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_the_first_load_notes_all_files(model: Path) -> None:
    manifest = json.loads((model / MANIFEST).read_text())
    assert manifest["version"] == 1
    assert set(manifest["text"]) == {"config.json", "tokenizer.json"}
    assert set(manifest["weights"]) == {"model.safetensors"}
    for level in ("size", "full"):
        check(model, level)


def test_templates_in_a_folder_of_their_own_are_noted_and_checked(toy: Path, tmp_path: Path) -> None:
    place = Path(shutil.copytree(toy, tmp_path / "model"))
    template = place / "additional_chat_templates/tool_use.jinja"
    template.parent.mkdir()
    template.write_text("tools")
    check(place, "size", text_only=True)
    template.write_text("other tools")
    with pytest.raises(ModelError, match=r"additional_chat_templates/tool_use\.jinja has 11 bytes"):
        check(place, "size", text_only=True)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda place: flip(place / "model.safetensors"), r"model\.safetensors has the SHA-256 \w+…, not \w+… as at"),
        (lambda place: (place / "model.safetensors").write_bytes(b"x"), r"model\.safetensors has 1 bytes, not \d+"),
        (lambda place: (place / "tokenizer.json").unlink(), r"tokenizer\.json is missing, which was there"),
        (lambda place: (place / "chat_template.jinja").write_text(""), r"chat_template\.jinja was not there"),
    ],
)
def test_a_change_refuses_the_start_until_it_is_accepted(
    model: Path, change: Callable[[Path], object], sentence: str
) -> None:
    change(model)
    with pytest.raises(ModelError, match=rf"{sentence}.*; `outrider models verify --renew {model}` accepts") as refused:
        check(model, "size")
    assert "\n" not in str(refused.value)
    check(model, "off")
    renew(model)
    check(model, "full")


def test_only_a_full_check_finds_a_change_that_keeps_size_and_time(model: Path) -> None:
    flip(model / "model.safetensors", keep_time=True)
    check(model, "size")
    with pytest.raises(ModelError, match=r"model\.safetensors has the SHA-256"):
        check(model, "full")


def test_a_copy_with_other_times_is_the_same_model(model: Path) -> None:
    os.utime(model / "model.safetensors", ns=(1, 1))
    check(model, "size")
    entry = json.loads((model / MANIFEST).read_text())["weights"]["model.safetensors"]
    assert entry["mtime_ns"] == 1


def test_the_text_alone_is_noted_and_checked_alone(toy: Path, tmp_path: Path) -> None:
    place = Path(shutil.copytree(toy, tmp_path / "model"))
    check(place, "size", text_only=True)
    assert "weights" not in json.loads((place / MANIFEST).read_text())
    flip(place / "model.safetensors")
    check(place, "full", text_only=True)
    check(place, "full")
    assert set(json.loads((place / MANIFEST).read_text())) == {"version", "text", "weights"}
    flip(place / "config.json")
    with pytest.raises(ModelError, match=r"config\.json has the SHA-256"):
        check(place, "size", text_only=True)


@pytest.mark.parametrize("text", ["{", "[]", '{"version": 2}', '{"version": 1, "text": {"a": {"size": "1"}}}'])
def test_a_damaged_manifest_is_one_sentence(model: Path, text: str) -> None:
    (model / MANIFEST).write_text(text)
    with pytest.raises(
        ModelError, match=rf"{MANIFEST}, the manifest of {model}, is damaged \(.*--renew {model}` writes"
    ):
        check(model, "size")
    renew(model)
    check(model, "size")


def test_a_file_has_its_manifest_beside_it(tmp_path: Path) -> None:
    file = tmp_path / "tiny.gguf"
    file.write_bytes(b"GGUF" * 100)
    check(file, "size")
    assert (tmp_path / f"tiny.gguf.{MANIFEST}").is_file()
    flip(file)
    with pytest.raises(ModelError, match=rf"{file} has the SHA-256"):
        check(file, "size")


def test_a_manifest_that_cannot_be_written_beside_the_model_is_in_the_cache(
    toy: Path, tmp_path: Path, cache: Path
) -> None:
    place = Path(shutil.copytree(toy, tmp_path / "model"))
    (place / MANIFEST).mkdir()  # nobody can write a file there, not even root
    check(place, "size")
    assert len(list(cache.rglob("model-*.json"))) == 1
    flip(place / "config.json")
    with pytest.raises(ModelError, match=r"config\.json has the SHA-256"):
        check(place, "size")


def test_a_model_of_the_hub_has_its_manifest_in_the_cache_with_the_hub_s_hashes(hub: Hub, tmp_path: Path) -> None:
    variables = environment(hub, tmp_path)
    code = "from outrider.engine.store import obtain; print(obtain('org/tiny', 'size'))"
    place = Path(python(variables, code).stdout.strip())
    assert not (place / MANIFEST).exists()
    (manifest,) = (tmp_path / "cache" / "outrider" / "manifests").glob("*.json")
    noted = json.loads(manifest.read_text())["weights"]["model.safetensors"]["sha256"]
    assert noted == (place / "model.safetensors").resolve().name
    flip((place / "model.safetensors").resolve())
    refused = python(variables, code)
    assert "model.safetensors has the SHA-256" in refused.stderr


def test_damage_before_the_first_load_of_a_model_of_the_hub_is_found(hub: Hub, tmp_path: Path) -> None:
    variables = environment(hub, tmp_path)
    code = "from outrider.engine.store import {0}; print({0}('org/tiny'{1}))"
    place = Path(python(variables, code.format("locate", "")).stdout.strip())
    flip((place / "model.safetensors").resolve())
    assert "model.safetensors has the SHA-256" in python(variables, code.format("obtain", ", 'full'")).stderr


def test_verify_tells_whether_the_model_was_known(toy: Path, tmp_path: Path) -> None:
    place = Path(shutil.copytree(toy, tmp_path / "model"))
    assert not verify(place)
    assert verify(place)
    assert verify(pocket.directory("draft"))


def test_processes_that_load_a_model_for_the_first_time_together_write_one_manifest(toy: Path, tmp_path: Path) -> None:
    place = Path(shutil.copytree(toy, tmp_path / "model"))
    programs = [
        f"from pathlib import Path; from outrider.engine.store import check; check(Path({str(place)!r}), 'size'{only})"
        for only in ("", ", text_only=True", "")
    ]
    started = [subprocess.Popen([sys.executable, "-c", program]) for program in programs]
    assert [process.wait(60) for process in started] == [0, 0, 0]
    assert set(json.loads((place / MANIFEST).read_text())) == {"version", "text", "weights"}
    check(place, "full")
