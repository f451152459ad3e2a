"""Which files of a repository, or of a directory, a model needs. Pickles are never among them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase

from outrider.engine.errors import ModelError
from outrider.engine.store.names import ModelName

INDEX = "model.safetensors.index.json"
_SINGLE = "model.safetensors"
POOLING = "1_Pooling/config.json"
"""Where sentence-transformers says how embeddings are pooled."""
_TEXT = (
    POOLING,
    "added_tokens.json",
    "additional_chat_templates/*.jinja",
    "chat_template*.jinja",
    "chat_template*.json",
    "config.json",
    "generation_config.json",
    "merges.txt",
    "quant*config*.json",
    "special_tokens_map.json",
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "vocab.json",
)
_TOKENIZERS = ("tokenizer.json", "tokenizer.model")
_PICKLES = (".bin", ".pt", ".pth", ".ckpt")
_PROJECTOR = "mmproj"
_PIECE = re.compile(r"-\d{5}-of-\d{5}$")

Shards = Callable[[], Iterable[str]]
"""Reads the names of shards in the index of a repository."""


def text_files(names: Iterable[str]) -> list[str]:
    """Files of the configuration, the chat template and the tokenizer, the last being the tokenizer's."""
    found = [name for name in names if any(fnmatchcase(name, pattern) for pattern in _TEXT)]
    return sorted(found, key=lambda name: (is_tokenizer(name), name))


def is_tokenizer(name: str) -> bool:
    """Whether a file holds a vocabulary."""
    return name in _TOKENIZERS


def weight_files(names: Sequence[str], where: str, shards: Shards) -> list[str]:
    """Files of the weights: an index and its shards, else ``model.safetensors``, else other safetensors of the folder.

    Raises:
        ModelError: there are no safetensors.
    """
    if INDEX in names:
        return [INDEX, *sorted(set(shards()))]
    if _SINGLE in names:
        return [_SINGLE]
    if found := sorted(name for name in names if name.endswith(".safetensors") and "/" not in name):
        return found
    pickles = [name for name in sorted(names) if name.endswith(_PICKLES)]
    raise ModelError(
        f"{where} has no weights that can be read, safetensors or GGUF"
        + (f"; {pickles[0]} is a pickle, which is never loaded" if pickles else "")
    )


def gguf_file(names: Sequence[str], name: ModelName) -> str | None:
    """The GGUF file that ``name`` means; None for a repository of safetensors, unless the name has a file.

    Raises:
        ModelError: the name has a file that is not there, or it has none and there are several.
    """
    files = [file for file in sorted(names) if file.endswith(".gguf") and not _last(file).startswith(_PROJECTOR)]
    if not name.file and (not files or any(file.endswith(".safetensors") for file in names)):
        return None
    meant = [file for file in files if not name.file or means(name.file, file)]
    if len(meant) > 1:
        meant = [file for file in meant if file == name.file] or meant
    if len(meant) == 1:
        return _whole(meant[0], name)
    if meant or not name.file:
        raise ModelError(f"{name.repository} has several GGUF files{_of(name)}: name one of {_choices(name, meant)}")
    if not files:
        raise ModelError(f"{name.repository} has no GGUF files; leave :{name.file} out")
    raise ModelError(f"{name.repository} has no GGUF file {name.file}: name one of {_choices(name, files)}")


def means(part: str, file: str) -> bool:
    """Whether ``part`` is a file's path, its name, or the end of its name from a dash, a dot or an underscore on."""
    if part in (file, _last(file)):
        return True
    stem = _PIECE.sub("", _last(file).removesuffix(".gguf")).lower()
    return re.search(rf"(^|[-._]){re.escape(part.lower())}$", stem) is not None


def _whole(file: str, name: ModelName) -> str:
    if _PIECE.search(file.removesuffix(".gguf")):
        raise ModelError(f"{name.repository} has {file} in pieces, which are not read; llama-gguf-split merges them")
    return file


def _of(name: ModelName) -> str:
    return f" of {name.file}" if name.file else ""


def _choices(name: ModelName, files: Sequence[str]) -> str:
    return ", ".join(f"{name.repository}:{file}" for file in files)


def _last(file: str) -> str:
    return file.rpartition("/")[2]
