"""Brings a model of the Hub into the cache."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from huggingface_hub import is_offline_mode
from outrider.engine.errors import ModelError
from outrider.engine.store import hub, listing
from outrider.engine.store.download import Download
from outrider.engine.store.hub import RemoteFile
from outrider.engine.store.names import ModelName
from outrider.engine.store.progress import Watch, unwatched


def bring(name: ModelName, text_only: bool, watch: Watch) -> Path:
    """The directory or GGUF file of a name, after all that it needs is in the cache.

    Raises:
        ModelError: see `outrider.engine.store.locate`.
    """
    if (name.pinned or is_offline_mode()) and (place := cached(name, text_only)) is not None:
        return place
    try:
        revision = hub.revision(name)
    except hub.OutOfReach:
        if (place := cached(name, text_only)) is not None:
            return place
        raise
    return _bring(name, revision, text_only, watch)


def commit_of(name: ModelName) -> str:
    """The commit of a name's revision in the cache; `ModelError` if it is not there."""
    place = hub.snapshot(name)
    if place is None:
        raise ModelError(f"{name} is not in {hub.cache()}")
    return place.name


def cached(name: ModelName, text_only: bool = False) -> Path | None:
    """The directory or GGUF file of a name, if all that it needs is in the cache."""
    place = hub.snapshot(name)
    if place is None:
        return None
    files = hub.names_below(place)
    if (file := listing.gguf_file(files, name) if _is_gguf(files, name) else None) is not None:
        return place / file
    return place if _is_whole(place, files, text_only) else None


def _is_gguf(files: list[str], name: ModelName) -> bool:
    """Whether a name means a GGUF file that is among ``files``."""
    try:
        return listing.gguf_file(files, name) is not None
    except ModelError:
        return False


def _is_whole(place: Path, files: list[str], text_only: bool) -> bool:
    """Whether a directory has all files; those of the text come before the weights, the tokenizer last."""
    if text_only and any(listing.is_tokenizer(name) for name in files):
        return True
    try:
        wanted = listing.weight_files(files, str(place), lambda: hub.shards_in(place / listing.INDEX))
    except ModelError:
        return False
    return set(wanted) <= set(files)


def _bring(name: ModelName, revision: hub.Revision, text_only: bool, watch: Watch) -> Path:
    at, files = name.at(revision.commit), revision.files
    if (file := listing.gguf_file(list(files), name)) is not None:
        place = Download(at, [files[file]], watch).run() / file
    else:
        place = _bring_directory(at, files, text_only, watch)
    hub.note_commit(name, revision.commit)
    return place


def _bring_directory(name: ModelName, files: Mapping[str, RemoteFile], text_only: bool, watch: Watch) -> Path:
    """Brings the text first, then the weights."""
    text = [files[file] for file in listing.text_files(files)]
    weights = [] if text_only else [files[file] for file in _weights(name, files)]
    return Download(name, [*text, *weights], watch).run()


def _weights(name: ModelName, files: Mapping[str, RemoteFile]) -> list[str]:
    """Files of the weights; reads the index, if there is one."""

    def shards() -> list[str]:
        index = Download(name, [files[listing.INDEX]], unwatched).run() / listing.INDEX
        return hub.shards_in(index)

    weights = listing.weight_files(list(files), name.repository, shards)
    if lacking := [file for file in weights if file not in files]:
        raise ModelError(f"{name} has no {lacking[0]}, which its index names")
    return weights
