"""What huggingface_hub is asked: the files of a revision, and its cache. Failures become one sentence."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx2
from huggingface_hub import HfApi, constants
from huggingface_hub.errors import (
    EntryNotFoundError,
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.utils import get_token
from outrider.engine.errors import ModelError
from outrider.engine.store.names import ModelName


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file of a repository.

    Attributes:
        size: in bytes.
        sha256: of its content, in hexadecimal; empty where the Hub keeps the file in Git, as it does small ones.
    """

    name: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Revision:
    """The files of a repository at a commit, by name."""

    commit: str
    files: dict[str, RemoteFile]


class OutOfReach(ModelError):
    """The Hub cannot be asked: there is no network, or it is forbidden, or the Hub is down."""


def cache() -> Path:
    """Directory of huggingface_hub's cache, as ``HF_HUB_CACHE`` or ``HF_HOME`` say."""
    return Path(constants.HF_HUB_CACHE)


def folder(repository: str) -> Path:
    """A repository's directory in the cache, by the layout that huggingface_hub documents."""
    return cache() / f"models--{repository.replace('/', '--')}"


def snapshot(name: ModelName) -> Path | None:
    """Directory of the cached files of a name's revision, maybe not all of them; None if there is none."""
    commit = name.revision
    reference = folder(name.repository) / "refs" / name.revision
    if not name.pinned and reference.is_file():
        commit = reference.read_text().strip()
    place = folder(name.repository) / "snapshots" / commit
    return place if place.is_dir() else None


def note_commit(name: ModelName, commit: str) -> None:
    """Notes in the cache what commit a branch or tag is at, for later starts without network."""
    if not name.pinned:
        reference = folder(name.repository) / "refs" / name.revision
        with sentences(name):
            reference.parent.mkdir(parents=True, exist_ok=True)
            written = reference.with_name(f".{reference.name}.{os.getpid()}")
            written.write_text(commit)
            os.replace(written, reference)


def shards_in(index: Path) -> list[str]:
    """Names of the shards in an index; `ModelError` if it is none."""
    try:
        shards = set(json.loads(index.read_bytes())["weight_map"].values())
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        raise ModelError(f"{index} is no index of safetensors") from None
    if wrong := [shard for shard in shards if not isinstance(shard, str) or Path(shard).name != shard]:
        raise ModelError(f"{index} names {wrong[0]!r}, which is no file name without a folder")
    return sorted(shards)


def revision(name: ModelName) -> Revision:
    """Asks the Hub for the files of a name's revision.

    Raises:
        OutOfReach: the Hub cannot be asked.
        ModelError: there is no such repository or revision, or it is not for this user.
    """
    with sentences(name):
        info = HfApi().model_info(name.repository, revision=name.revision, files_metadata=True)
    files = (
        RemoteFile(file.rfilename, file.size or 0, file.lfs.sha256 if file.lfs else "") for file in info.siblings or []
    )
    return Revision(info.sha or name.revision, {file.name: file for file in files})


@contextmanager
def sentences(name: ModelName) -> Iterator[None]:
    """Turns the errors of huggingface_hub in the block into `ModelError`, of one sentence each."""
    try:
        yield
    except (ModelError, KeyboardInterrupt):
        raise
    except (OfflineModeIsEnabled, httpx2.TransportError) as error:
        raise OutOfReach(_out_of_reach(name, error)) from None
    except HfHubHTTPError as error:
        raise _refused(name, error) from None
    except HFValidationError as error:
        raise ModelError(f"{name} is not a name of the Hub: {error}") from None
    except OSError as error:
        raise ModelError(_no_place(name, error)) from None


def no_room(name: ModelName, missing: int) -> ModelError:
    """The error for a disk that lacks ``missing`` bytes."""
    return ModelError(
        f"there is no room for {name} in {cache()}: {missing / 1e9:.2f} GB are missing (HF_HOME moves the cache)"
    )


def _out_of_reach(name: ModelName, error: Exception) -> str:
    if isinstance(error, OfflineModeIsEnabled):
        return f"{name} is not wholly in {cache()}, and HF_HUB_OFFLINE forbids the network"
    reason = str(error).strip() or type(error).__name__
    return f"{name} is not wholly in {cache()}, and {constants.ENDPOINT} cannot be reached ({reason})"


def _refused(name: ModelName, error: HfHubHTTPError) -> ModelError:
    page, status = f"{constants.ENDPOINT}/{name.repository}", error.response.status_code
    if isinstance(error, GatedRepoError):
        using = "the token in use has no access" if get_token() else "set HF_TOKEN to a token of that account"
        return ModelError(f"{name.repository} is gated: accept its terms at {page}, and {using}")
    if isinstance(error, RevisionNotFoundError):
        return ModelError(f"{name.repository} has no revision {name.revision}")
    if isinstance(error, EntryNotFoundError):
        return ModelError(f"{name} lacks a file that its revision lists: {page}")
    if isinstance(error, RepositoryNotFoundError):
        return ModelError(
            f"there is neither a path {name.repository} nor a model of that name at {constants.ENDPOINT}; "
            "a private one needs HF_TOKEN"
        )
    if status in (401, 403):
        return ModelError(f"{constants.ENDPOINT} refuses {name} to this HF_TOKEN (status {status})")
    return OutOfReach(f"{name} is not wholly in {cache()}, and {constants.ENDPOINT} answers with status {status}")


def _no_place(name: ModelName, error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"there is no room for {name} in {cache()} (HF_HOME moves the cache)"
    if error.errno in (errno.EACCES, errno.EROFS, errno.EPERM):
        return f"{cache()} cannot be written (HF_HOME moves the cache): {error.strerror}"
    return f"{name} could not be fetched: {' '.join(str(error).split())}"


def names_below(place: Path) -> list[str]:
    """Paths of the files below a directory, relative to it."""
    return sorted(path.relative_to(place).as_posix() for path in place.rglob("*") if path.is_file())
