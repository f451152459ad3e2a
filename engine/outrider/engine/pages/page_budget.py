"""How many KV pages an engine has: those of its settings, or as many as a share of the free memory holds."""

from __future__ import annotations

import torch
from outrider.engine.errors import SettingsError
from outrider.engine.logs import get_logger
from outrider.engine.models.llama import LlamaModel
from outrider.engine.pages.free_memory import free_bytes
from outrider.engine.settings import EngineSettings

LEAST_ROOM = 128
"""Tokens that the pages must hold, unless the model's context is shorter."""
GPU_SHARE, CPU_SHARE = 0.9, 0.25
"""The shares of free memory that ``memory_fraction`` = 0 stands for."""
CPU_ENOUGH = 512 << 20
"""Bytes of pages on a CPU that ``memory_fraction`` = 0 exceeds only for a longer context: all are written at start."""


_log = get_logger("pages")


def page_count(model: LlamaModel, settings: EngineSettings, free: int | None = None, enough: int = CPU_ENOUGH) -> int:
    """The pages of an engine.

    Args:
        model: the target, loaded.
        settings: of the engine.
        free: bytes that pages may take; measured if None, and shared out to the ranks of a model on a CPU.
        enough: see `CPU_ENOUGH`.

    Raises:
        SettingsError: the pages of the settings do not fit, or those that fit hold too few tokens.
    """
    if free is None:
        free = free_bytes(model.device) - _aside(model, settings)
        free //= model.ranks if model.device.type == "cpu" else 1
    page = model.token_bytes() * settings.page_size
    if settings.pages:
        if settings.pages * page > free:
            raise SettingsError(_too_many(model, settings, free))
        return settings.pages
    context, budget = model.config.context_length, _budget(model, settings, free, enough)
    pages = min(budget // page, -(-context // settings.page_size) * settings.max_running)
    if pages * settings.page_size < context:
        if pages * settings.page_size < min(context, LEAST_ROOM):
            raise SettingsError(_too_few(model, settings, free, budget))
        _log.warning(_too_few(model, settings, free, budget), served_context=pages * settings.page_size)
    return pages


def _aside(model: LlamaModel, settings: EngineSettings) -> int:
    """Bytes of a GPU for the largest step: its logits, float32, and three copies of them for the draw."""
    return 0 if model.device.type == "cpu" else 4 * settings.max_rows * model.config.vocab_size * 4


def _budget(model: LlamaModel, settings: EngineSettings, free: int, enough: int) -> int:
    """Bytes that pages may take of ``free`` ones."""
    share, most = settings.memory_fraction, free
    if not share and model.device.type == "cpu":
        context = model.config.context_length + settings.page_size
        share, most = CPU_SHARE, max(enough, context * model.token_bytes())
    return min(int(free * (share or GPU_SHARE)) // settings.memory_sharers, most)


def _too_many(model: LlamaModel, settings: EngineSettings, free: int) -> str:
    page = model.token_bytes() * settings.page_size
    return (
        f"pages = {settings.pages} of {settings.page_size} tokens take {_bytes(settings.pages * page)}, and "
        f"{_bytes(free)} are free on {model.device}: at most pages = {free // page} fit"
        f"{_narrower(model, settings, free)}"
    )


def _too_few(model: LlamaModel, settings: EngineSettings, free: int, budget: int) -> str:
    context, token = model.config.context_length, model.token_bytes()
    tokens = budget // (token * settings.page_size) * settings.page_size
    return (
        f"the model's context of {context} tokens takes {_bytes(context * token)} of KV pages, but {_bytes(budget)} of "
        f"the {_bytes(max(free, 0))} that are free on {model.device} are for pages: they hold {tokens} tokens"
        f"{_narrower(model, settings, budget)}; memory_fraction = 1 would hold {max(free, 0) // token}"
    )


def _narrower(model: LlamaModel, settings: EngineSettings, room: int) -> str:
    """How many tokens or pages fit into ``room`` bytes in int8; empty where that is no less memory."""
    if torch.int8 not in model.kv_dtypes or model.token_bytes(torch.int8) >= model.token_bytes():
        return ""
    pages = room // (model.token_bytes(torch.int8) * settings.page_size)
    fit = f"pages = {pages}" if settings.pages else f"{pages * settings.page_size} tokens"
    return f", or {fit} with kv_dtype = int8"


def _bytes(size: int) -> str:
    return f"{size / 2**30:.2f} GiB" if size >= 2**28 else f"{size / 2**20:.1f} MiB"
