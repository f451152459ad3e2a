"""One hash of everything that the bits of pages depend on, except their tokens."""

from __future__ import annotations

import hashlib
import platform
from pathlib import Path

import torch
from outrider.engine.models.gguf.header import is_gguf
from outrider.engine.models.llama import LlamaModel
from outrider.kernels.backend import choice
from outrider.kernels.pool import KvPool

_VERSION = 3


def page_fingerprint(directory: Path, model: LlamaModel, pool: KvPool, *, quantization: str, determinism: str) -> bytes:
    """SHA-256 of the model, of the layout of its pages, and of the code that computes them.

    Other code may compute other bits, as another model does. For exact answers, a fetched page must equal the page that
    the verifier itself would compute, so pages of other code have another fingerprint. Reads all weights.

    Args:
        directory: directory of the checkpoint, or a GGUF file.
        model: the model loaded from it.
        pool: the model's pages.
        quantization: quantization of the weights.
        determinism: the model's mode of determinism.
    """
    parts = [f"pages {_VERSION}", quantization, determinism, str(model.dtype), *_layout(pool), *_code(model)]
    parts += [f"ranks {model.ranks}"] if model.ranks > 1 else []
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
    if is_gguf(directory):
        return [directory]
    return [directory / "config.json", *sorted(directory.glob("*.safetensors"))]


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
