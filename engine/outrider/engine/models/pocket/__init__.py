"""The pocket models: a small target, its draft and its Medusa heads, shipped with the package."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Literal

from outrider.engine.errors import ModelError

_WEIGHTS = Path(__file__).parent / "weights"
_MANIFEST = "MANIFEST.json"


class ManifestError(ModelError):
    """A shipped file was changed; the message is one sentence that names the file."""


def directory(name: Literal["target", "draft", "medusa"]) -> Path:
    """Directory of a shipped model, in Hugging Face's layout."""
    return _WEIGHTS / name


def verify(directory: Path) -> None:
    """Checks a shipped directory against its manifest; `ManifestError` for a missing or changed file."""
    manifest = directory / _MANIFEST
    try:
        expected: dict[str, str] = json.loads(manifest.read_text())
    except (OSError, ValueError) as error:
        raise ManifestError(f"{manifest} cannot be read: {error}") from None
    for name, digest in expected.items():
        path = directory / name
        if not path.is_file():
            raise ManifestError(f"{path} is missing")
        actual = hashlib.sha256(path.read_bytes()).hexdigest()
        if actual != digest:
            raise ManifestError(f"{path} has the SHA-256 {actual[:16]}…, not {digest[:16]}… as it was shipped")
