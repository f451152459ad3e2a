"""Brings files of a revision into huggingface_hub's cache. A large file is resumed where an earlier process left it.

huggingface_hub resumes a file only within one call. So a file whose SHA-256 the Hub tells is brought here by its
`http_get` into a partial file of a lasting name, checked, and moved to where huggingface_hub keeps its blobs; that
layout is documented (Understand caching).
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from pathlib import Path

from huggingface_hub import constants, hf_hub_download, hf_hub_url
from huggingface_hub.file_download import http_get
from huggingface_hub.utils import WeakFileLock, build_hf_headers, disable_progress_bars
from outrider.engine.errors import ModelError
from outrider.engine.store import hub
from outrider.engine.store.digests import sha256
from outrider.engine.store.hub import RemoteFile
from outrider.engine.store.names import ModelName
from outrider.engine.store.progress import Progress, Watch

_AT_ONCE = 4
_PARTIAL = ".outrider-partial"


class Download:
    """The download of files of a model.

    Args:
        name: the model, pinned.
        files: in the order in which they come: one of the text after the other, then the weights together.
        watch: is told how far the download is.
    """

    def __init__(self, name: ModelName, files: Sequence[RemoteFile], watch: Watch) -> None:
        self._name, self._files = name, files
        self._folder = hub.folder(name.repository)
        self._place = self._folder / "snapshots" / name.revision
        self._progress = Progress(name.served, sum(file.size for file in files), watch)

    def run(self) -> Path:
        """Brings the files that are not in the cache yet; the directory that holds all.

        Raises:
            ModelError: a file cannot be fetched, or there is no room for all.
        """
        missing = [file for file in self._files if not (self._place / file.name).exists()]
        if missing:
            disable_progress_bars()
            with hub.sentences(self._name):
                self._require_room(missing)
                self._progress.add(sum(file.size for file in self._files if file not in missing))
                weights = [file for file in missing if file.name.endswith((".safetensors", ".gguf"))]
                for file in missing:
                    if file not in weights:
                        self._fetch(file)
                self._fetch_together(weights)
        return self._place

    def _fetch_together(self, files: Sequence[RemoteFile]) -> None:
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            running = [pool.submit(self._fetch, file) for file in files]
            try:
                for future in wait(running, return_when=FIRST_EXCEPTION).done:
                    future.result()
            except BaseException:
                self._progress.end()
                pool.shutdown(wait=False, cancel_futures=True)
                raise

    def _fetch(self, file: RemoteFile) -> None:
        """Brings one file, and has huggingface_hub link to it from the directory."""
        whole = bool(file.sha256) and file.size <= constants.MAX_HTTP_DOWNLOAD_SIZE
        if whole:
            self._fetch_blob(file)
        hf_hub_download(self._name.repository, file.name, revision=self._name.revision)
        if not whole:
            self._progress.add(file.size)

    def _fetch_blob(self, file: RemoteFile) -> None:
        blob = self._folder / "blobs" / file.sha256
        lock = hub.cache() / ".locks" / self._folder.name / f"{file.sha256}.lock"
        for path in (lock, blob):
            path.parent.mkdir(parents=True, exist_ok=True)
        with WeakFileLock(lock):
            if blob.exists():
                self._progress.add(file.size)
                return
            partial = blob.with_name(blob.name + _PARTIAL)
            self._resume(file, partial)
            self._require_hash(file, partial)
            os.replace(partial, blob)

    def _resume(self, file: RemoteFile, partial: Path) -> None:
        with partial.open("ab") as content:
            if (done := content.tell()) > file.size:
                content.truncate(done := 0)
            if done == file.size:
                self._progress.add(file.size)
                return
            http_get(
                hf_hub_url(self._name.repository, file.name, revision=self._name.revision),
                content,
                resume_size=done,
                headers=build_hf_headers(),
                expected_size=file.size,
                tqdm_class=self._progress.bar(),
            )

    def _require_hash(self, file: RemoteFile, partial: Path) -> None:
        if (digest := sha256(partial)) != file.sha256:
            partial.unlink()
            raise ModelError(
                f"{self._name.served}: {file.name} came with the SHA-256 {digest[:16]}…, not {file.sha256[:16]}… "
                "as the Hub tells it; it was thrown away"
            )

    def _require_room(self, files: Sequence[RemoteFile]) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        here = sum(map(_size, (self._folder / "blobs").glob(f"*{_PARTIAL}")))
        lacking = sum(file.size for file in files) - here - shutil.disk_usage(self._folder).free
        if lacking > 0:
            raise hub.no_room(self._name, lacking)


def _size(partial: Path) -> int:
    try:
        return partial.stat().st_size
    except FileNotFoundError:  # another process has brought the whole file meanwhile
        return 0
