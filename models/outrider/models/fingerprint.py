"""What pages of keys and values depend on beside their tokens, as one hash."""

from __future__ import annotations

import hashlib
import platform
from pathlib import Path

import torch
from outrider.kernels.backend import choice
from outrider.kernels.pool import KvPool
from outrider.models.llama import LlamaModel

_VERSION = 1


def page_fingerprint(directory: Path, model: LlamaModel, pool: KvPool, *, quantization: str, determinism: str) -> bytes:
    """SHA-256 of the model, of how its pages are laid out, and of the code that computes them.

    Bits differ between machines' code as they differ between models, so that whoever computes with other code finds no
    pages: where answers are to be exact, a page must be what one's own run would have made. Reads all weights.

    Args:
        directory: of the checkpoint.
        model: as loaded from it.
        pool: its pages.
        quantization: of its weights.
        determinism: as it was loaded.
    """
    parts = [f"pages {_VERSION}", quantization, determinism, str(model.dtype), *_layout(pool), *_code(model)]
    parts += [f"{path.name} {_digest(path)}" for path in _files(directory)]
    return hashlib.sha256("\n".join(parts).encode()).digest()


def _layout(pool: KvPool) -> list[str]:
    layers, _, *slot = pool.data.shape
    return [f"layers {layers}", f"slot {slot}", f"page {pool.page_size}", str(pool.dtype), f"packed {pool.packed}"]


def _code(model: LlamaModel) -> list[str]:
    if model.compiled:
        return ["compiled", model.compiled.library.path.name]
    device = torch.cuda.get_device_name(model.device) if model.device.type == "cuda" else platform.machine()
    capability = torch.backends.cpu.get_cpu_capability()
    return [choice(), torch.__version__, device, capability, f"threads {torch.get_num_threads()}"]


def _files(directory: Path) -> list[Path]:
    return [directory / "config.json", *sorted(directory.glob("*.safetensors"))]


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
