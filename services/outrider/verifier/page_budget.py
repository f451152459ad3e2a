"""How many KV pages a verifier has: those of its settings, or as many as a share of the free memory holds."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import torch
from outrider.mesh.errors import ConfigError
from outrider.mesh.own_directory import is_private, own_directory
from outrider.mesh.telemetry import get_logger
from outrider.models.free_memory import free_bytes
from outrider.models.llama import LlamaModel
from outrider.verifier.settings import VerifierSettings

LEAST_ROOM = 128
"""Tokens that the pages must hold, unless the model's context is shorter."""
GPU_SHARE, CPU_SHARE = 0.9, 0.25
"""The shares of free memory that ``memory_fraction`` = 0 stands for."""
CPU_ENOUGH = 512 << 20
"""Bytes of pages on a CPU that ``memory_fraction`` = 0 exceeds only for a longer context: all are written at start."""

WAIT_S = 120.0
"""Most seconds to wait for another verifier that measures."""
_POLL_S = 0.01

_log = get_logger("verifier")


@contextmanager
def measuring_alone(folder: Path | None = None, wait_s: float = WAIT_S) -> Iterator[None]:
    """Waits for other verifiers of this user on this machine that measure the free memory and then take their pages.

    They meet in a file in ``folder``, by default the user's own directory. Nobody waits where that is not the user's
    alone, or for longer than ``wait_s`` seconds; the log says so.
    """
    folder = folder or own_directory()
    with ExitStack() as held:
        try:
            _wait_for(held.enter_context(_own_file(folder / "memory.lock")), wait_s)
        except OSError as error:
            _log.warning("free memory is measured beside other verifiers", folder=str(folder), why=str(error))
        yield


@contextmanager
def _own_file(path: Path) -> Iterator[int]:
    """The descriptor of a file of this user; `OSError` for a link, and for a file or folder that others may change."""
    with suppress(FileExistsError):
        path.parent.mkdir(mode=0o700)
    if not is_private(path.parent):
        raise PermissionError(f"{path.parent} is not this user's alone")
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        if os.fstat(descriptor).st_uid != os.getuid():
            raise PermissionError(f"{path} belongs to another user")
        yield descriptor
    finally:
        os.close(descriptor)


def _wait_for(descriptor: int, wait_s: float) -> None:
    """Locks the file, when others leave it; `TimeoutError` after ``wait_s`` seconds."""
    until, told = time.monotonic() + wait_s, False
    while True:
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until:
                raise TimeoutError(f"another verifier has measured for {wait_s:g} s") from None
        if not told:
            _log.info("another verifier measures the free memory: this one waits", most_s=wait_s)
            told = True
        time.sleep(_POLL_S)


def page_count(model: LlamaModel, settings: VerifierSettings, free: int | None = None, enough: int = CPU_ENOUGH) -> int:
    """The pages of a verifier.

    Args:
        model: the target, loaded.
        settings: of the verifier.
        free: bytes that pages may take; measured if None.
        enough: see `CPU_ENOUGH`.

    Raises:
        ConfigError: the pages of the settings do not fit, or those that fit hold too few tokens.
    """
    free = free_bytes(model.device) - _aside(model, settings) if free is None else free
    page = model.token_bytes() * settings.page_size
    if settings.pages:
        if settings.pages * page > free:
            raise ConfigError(_too_many(model, settings, free))
        return settings.pages
    context, budget = model.config.context_length, _budget(model, settings, free, enough)
    pages = min(budget // page, -(-context // settings.page_size) * settings.max_running)
    if pages * settings.page_size < context:
        if pages * settings.page_size < min(context, LEAST_ROOM):
            raise ConfigError(_too_few(model, settings, free, budget))
        _log.warning(_too_few(model, settings, free, budget), served_context=pages * settings.page_size)
    return pages


def _aside(model: LlamaModel, settings: VerifierSettings) -> int:
    """Bytes of a GPU for the largest step: its logits, float32, and three copies of them for the draw."""
    return 0 if model.device.type == "cpu" else 4 * settings.max_rows * model.config.vocab_size * 4


def _budget(model: LlamaModel, settings: VerifierSettings, free: int, enough: int) -> int:
    """Bytes that pages may take of ``free`` ones."""
    share, most = settings.memory_fraction, free
    if not share and model.device.type == "cpu":
        context = model.config.context_length + settings.page_size
        share, most = CPU_SHARE, max(enough, context * model.token_bytes())
    return min(int(free * (share or GPU_SHARE)) // settings.memory_sharers, most)


def _too_many(model: LlamaModel, settings: VerifierSettings, free: int) -> str:
    page = model.token_bytes() * settings.page_size
    return (
        f"pages = {settings.pages} of {settings.page_size} tokens take {_bytes(settings.pages * page)}, and "
        f"{_bytes(free)} are free on {model.device}: at most pages = {free // page} fit"
        f"{_narrower(model, settings, free)}"
    )


def _too_few(model: LlamaModel, settings: VerifierSettings, free: int, budget: int) -> str:
    context, token = model.config.context_length, model.token_bytes()
    tokens = budget // (token * settings.page_size) * settings.page_size
    return (
        f"the model's context of {context} tokens takes {_bytes(context * token)} of KV pages, but {_bytes(budget)} of "
        f"the {_bytes(max(free, 0))} that are free on {model.device} are for pages: they hold {tokens} tokens"
        f"{_narrower(model, settings, budget)}; memory_fraction = 1 would hold {max(free, 0) // token}"
    )


def _narrower(model: LlamaModel, settings: VerifierSettings, room: int) -> str:
    """How many tokens or pages fit into ``room`` bytes in int8; empty where that is no less memory."""
    if torch.int8 not in model.kv_dtypes or model.token_bytes(torch.int8) >= model.token_bytes():
        return ""
    pages = room // (model.token_bytes(torch.int8) * settings.page_size)
    fit = f"pages = {pages}" if settings.pages else f"{pages * settings.page_size} tokens"
    return f", or {fit} with kv_dtype = int8"


def _bytes(size: int) -> str:
    return f"{size / 2**30:.2f} GiB" if size >= 2**28 else f"{size / 2**20:.1f} MiB"
