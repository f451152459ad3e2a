"""Models in huggingface_hub's cache: their list, and their removal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from huggingface_hub import CachedRevisionInfo, scan_cache_dir
from huggingface_hub.errors import CacheNotFound
from outrider.engine.errors import ModelError
from outrider.engine.store import hub, listing, manifests
from outrider.engine.store.names import ModelName


@dataclass(frozen=True, slots=True)
class CachedModel:
    """A model in the cache: the directory of a revision, or a GGUF file in it.

    Attributes:
        name: its repository, GGUF file and revision, which is a branch or tag where the cache knows one.
        commit: its commit.
        size: in bytes.
        format: ``safetensors``, ``GGUF``, or ``no weights``.
        place: its directory or GGUF file.
    """

    name: ModelName
    commit: str
    size: int
    format: str
    place: Path

    @property
    def snapshot(self) -> Path:
        """Directory of its revision."""
        return next(place for place in (self.place, *self.place.parents) if place.name == self.commit)


def cached_models() -> list[CachedModel]:
    """The models in the cache, by name."""
    try:
        scanned = scan_cache_dir()
    except CacheNotFound:
        return []
    models = [
        model
        for repository in scanned.repos
        if repository.repo_type == "model"
        for revision in repository.revisions
        for model in _models(repository.repo_id, revision)
    ]
    return sorted(models, key=lambda model: (str(model.name), model.commit))


def meant(model: str) -> list[CachedModel]:
    """The models in the cache that a name means, of all revisions and files where it names none.

    Raises:
        ModelError: there is none.
    """
    name = ModelName.parse(model)
    revision = name.revision if "@" in model else ""
    chosen = [cached for cached in cached_models() if _is_meant(cached, name, revision)]
    if not chosen:
        raise ModelError(f"{model} is not in {hub.cache()}; `outrider models list` lists what is")
    return chosen


def remove(models: Sequence[CachedModel]) -> int:
    """Removes models and their manifests from the cache; the bytes that this frees.

    A revision is removed as a whole when none of its models stay.
    """
    staying = {model.snapshot for model in cached_models() if model not in models}
    for model in models:
        manifests.forget(model.place)
    freed = sum(_remove_revision(snapshot) for snapshot in {model.snapshot for model in models} - staying)
    return freed + _remove_files([model.place for model in models if model.snapshot in staying])


def _remove_revision(snapshot: Path) -> int:
    """Removes a revision by its directory: repositories that are copies have commits of the same name."""
    scanned = scan_cache_dir()
    repositories = [repository for repository in scanned.repos if snapshot.is_relative_to(repository.repo_path)]
    strategy = replace(scanned, repos=frozenset(repositories)).delete_revisions(snapshot.name)
    strategy.execute()
    return strategy.expected_freed_size


def _remove_files(places: Sequence[Path]) -> int:
    if not places:
        return 0
    scanned = scan_cache_dir()
    files = [file for repository in scanned.repos for revision in repository.revisions for file in revision.files]
    chosen = [file for file in files if any(file.file_path.is_relative_to(place) for place in places)]
    strategy = scanned.delete_files(*chosen)
    strategy.execute()
    return strategy.expected_freed_size


def _is_meant(model: CachedModel, name: ModelName, revision: str) -> bool:
    return (
        model.name.repository == name.repository
        and (not name.file or listing.means(name.file, model.name.file))
        and (not revision or revision in (model.name.revision, model.commit))
    )


def _models(repository: str, revision: CachedRevisionInfo) -> list[CachedModel]:
    refs = sorted(revision.refs, key=lambda ref: (ref != "main", ref))
    name = ModelName(repository, revision=refs[0] if refs else revision.commit_hash)
    place, commit = revision.snapshot_path, revision.commit_hash
    sizes = {file.file_path.relative_to(place).as_posix(): file.size_on_disk for file in revision.files}
    gguf = [file for file in sorted(sizes) if file.endswith(".gguf")]
    others = sum(size for file, size in sizes.items() if file not in gguf)
    models = [
        CachedModel(ModelName(repository, file, name.revision), commit, sizes[file], "GGUF", place / file)
        for file in gguf
    ]
    if any(file.endswith(".safetensors") for file in sizes):
        return [CachedModel(name, commit, others, "safetensors", place), *models]
    return models or [CachedModel(name, commit, others, "no weights", place)]
