"""How a model is named: `pocket`, a path, or a repository of the Hugging Face Hub."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

from outrider.engine.errors import ModelError

POCKET = "pocket"
"""The name of the shipped models."""
FORM = "org/repository[:file][@revision]"
_PART = r"[A-Za-z0-9_][A-Za-z0-9._-]*"
_NAME = re.compile(rf"(?!.*\.\.)(?P<repository>{_PART}/{_PART})(:(?P<file>[^@:]+))?(@(?P<revision>[^@:\s]+))?")
_COMMIT = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True, slots=True)
class ModelName:
    """A model of the Hub, written ``org/repository[:file][@revision]``.

    Attributes:
        repository: organization and name.
        file: a GGUF file's path in the repository, or the end of it before ``.gguf``, in any case; empty for none.
        revision: branch, tag or commit.
    """

    repository: str
    file: str = ""
    revision: str = "main"

    def __str__(self) -> str:
        return self.served + ("" if self.revision == "main" else f"@{self.revision}")

    @property
    def served(self) -> str:
        """The name without its revision."""
        return self.repository + (f":{self.file}" if self.file else "")

    @property
    def pinned(self) -> bool:
        """Whether the revision is a commit, which never changes."""
        return _COMMIT.fullmatch(self.revision) is not None

    def at(self, revision: str) -> ModelName:
        """The same model at another revision."""
        return replace(self, revision=revision)

    @classmethod
    def parse(cls, model: str) -> ModelName:
        """The name in ``model``, which has the form of one."""
        match = _NAME.fullmatch(model)
        if match is None:
            raise ModelError(f"{model} is not written {FORM}")
        return cls(match["repository"], match["file"] or "", match["revision"] or "main")


def is_path(model: str) -> bool:
    """Whether ``model`` is a path: it exists, or it does not have the form of a name, as ``./x`` has not."""
    return _NAME.fullmatch(model) is None or Path(model).exists()


def served_name(model: str) -> str:
    """The name by which requests ask for ``model`` by default.

    That is the repository as it is named, without a revision, or the name of a directory or file.
    """
    if model == POCKET:
        return POCKET
    return Path(model).absolute().name if is_path(model) else ModelName.parse(model).served
