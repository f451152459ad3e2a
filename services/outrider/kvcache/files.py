"""The tiers whose pages outlive the process: ``disk`` belongs to one instance, ``directory`` to all instances."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from outrider.kvcache.blob import HEADER_BYTES, DamagedPage
from outrider.kvcache.objects import LocalObjects, ObjectStore
from outrider.kvcache.seal import AesGcm, Plain, Seal
from outrider.kvcache.tiers import TierContext, TierError, no_options
from outrider.mesh.telemetry import get_logger

_UNREADABLE = b"unreadable"
_log = get_logger("kvcache")


class ObjectTier:
    """A `Tier` that stores pages as objects.

    If the store fails, only its pages are lost. Options: ``path``, the directory; ``key_file``, the encryption key.
    """

    def __init__(self, objects: ObjectStore, seal: Seal, *, shared: bool) -> None:
        self._objects, self._seal, self.shared = objects, seal, shared
        self._failing = False

    def write(self, key: bytes, blob: bytes) -> bool:
        """See `Tier`."""
        try:
            self._objects.put(key.hex(), self._seal.seal(key, blob))
        except OSError as error:
            self._failed("a page could not be written", error)
            return False
        self._failing = False
        return True

    def read(self, key: bytes) -> bytes | None:
        """See `Tier`; a sealed page that was changed is returned as a blob that no longer opens."""
        try:
            sealed = self._objects.get(key.hex())
            return None if sealed is None else self._seal.open(key, sealed)
        except DamagedPage:
            return _UNREADABLE
        except OSError as error:
            self._failed("a page could not be read", error)
            return None

    def remove(self, key: bytes) -> None:
        """See `Tier`."""
        try:
            self._objects.delete(key.hex())
        except OSError as error:
            self._failed("a page could not be removed", error)

    def stored(self) -> Iterable[tuple[bytes, bytes]]:
        """See `Tier`."""
        for name in self._objects.list():
            try:
                key, blob = bytes.fromhex(name), self._objects.get(name, HEADER_BYTES)
            except (ValueError, OSError):
                continue
            if blob is not None:
                yield key, blob

    def close(self) -> None:
        """See `Tier`."""

    def _failed(self, what: str, error: OSError) -> None:
        if not self._failing:
            _log.warning(what, why=error.strerror or str(error))
        self._failing = True


class DiskTier(ObjectTier):
    """The tier ``disk``, in the first numbered directory below ``path`` that no other process has locked.

    Attributes:
        shard: shard name of the directory: the instance that used it first. Pages are assigned by shard name.

    Raises:
        TierError: an option is wrong, or the shard name cannot be written.
    """

    def __init__(self, context: TierContext) -> None:
        objects, seal = _open("disk", context, own=True)
        objects.sweep()
        try:
            self.shard = objects.label(context.instance)
        except OSError as error:
            raise TierError(f"kvcache.options.disk.path: {error.filename}: {error.strerror}") from None
        super().__init__(objects, seal, shared=False)
        self._objects: LocalObjects = objects

    def close(self) -> None:
        """See `Tier`."""
        self._objects.unlock()


class DirectoryTier(ObjectTier):
    """The tier ``directory``.

    Raises:
        TierError: an option is wrong.
    """

    def __init__(self, context: TierContext) -> None:
        super().__init__(*_open("directory", context), shared=True)


def _open(name: str, context: TierContext, *, own: bool = False) -> tuple[LocalObjects, Seal]:
    options = dict(context.options)
    path = _path(name, "path", options.pop("path", None))
    key_file = options.pop("key_file", None)
    no_options(name, options)
    seal = Plain() if key_file is None else AesGcm(_path(name, "key_file", key_file))
    try:
        objects = _first_free(path) if own else LocalObjects(path)
    except OSError as error:
        raise TierError(f"kvcache.options.{name}.path: {path}: {error.strerror}") from None
    return objects, seal


def _first_free(path: Path) -> LocalObjects:
    for number in itertools.count():
        if (objects := LocalObjects(path / str(number))).lock():
            return objects
    raise AssertionError


def _path(name: str, option: str, value: Any) -> Path:
    if not isinstance(value, str) or not value:
        raise TierError(f"kvcache.options.{name}.{option} must name a path, not {value!r}")
    return Path(value)
