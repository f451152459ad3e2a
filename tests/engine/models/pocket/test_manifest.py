import json
import shutil
from pathlib import Path

import pytest
from outrider.engine.models import pocket

NAMES = ("target", "draft", "medusa")


@pytest.mark.parametrize("name", NAMES)
def test_the_shipped_files_are_those_of_their_manifest(name: str) -> None:
    folder = pocket.directory(name)  # type: ignore[arg-type]
    pocket.verify(folder)
    listed = set(json.loads((folder / "MANIFEST.json").read_text()))
    assert listed == {f.name for f in folder.iterdir()} - {"MANIFEST.json"}


def test_one_flipped_byte_is_named(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(pocket.directory("draft"), tmp_path / "draft"))
    file = folder / "model.safetensors"
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    with pytest.raises(pocket.ManifestError, match=r"model\.safetensors has the SHA-256"):
        pocket.verify(folder)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(pocket.directory("draft"), tmp_path / "draft"))
    (folder / "tokenizer.json").unlink()
    with pytest.raises(pocket.ManifestError, match=r"tokenizer\.json is missing"):
        pocket.verify(folder)


def test_an_unreadable_manifest_is_named(tmp_path: Path) -> None:
    (tmp_path / "MANIFEST.json").write_text("{")
    with pytest.raises(pocket.ManifestError, match=r"MANIFEST\.json cannot be read"):
        pocket.verify(tmp_path)


def test_everything_shipped_fits_in_24_megabytes() -> None:
    folder = pocket.directory("target").parent
    assert sum(f.stat().st_size for f in folder.rglob("*") if f.is_file()) <= 24_000_000
