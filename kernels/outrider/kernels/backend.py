"""Chooses between the implementations of an op: plain torch, Triton, and for whole decoders compiled code."""

from __future__ import annotations

import importlib.util
import os
from functools import cache

import torch
from outrider.native.library import Library, NativeUnavailable, library

CHOICES = ("auto", "torch", "triton", "native")


class BackendError(Exception):
    """The implementation asked for cannot run here."""


@cache
def choice() -> str:
    """The implementation chosen by the environment variable ``OUTRIDER_KERNELS``.

    ``auto`` (the default) is Triton on CUDA devices where it is installed, and torch elsewhere, but for whole decoders
    on a CPU `outrider.native` where it is compiled. ``native`` requires it.

    Raises:
        BackendError: the value is none of `CHOICES`, or names Triton, which is not installed.
    """
    chosen = os.environ.get("OUTRIDER_KERNELS", "auto")
    if chosen not in CHOICES:
        raise BackendError(f"OUTRIDER_KERNELS is {chosen!r}; it must be one of {', '.join(CHOICES)}")
    if chosen == "triton" and not _installed():
        raise BackendError('OUTRIDER_KERNELS is "triton", which is not installed: pip install "outrider[gpu]"')
    return chosen


def compiled() -> Library | None:
    """The compiled library; None where there is none or ``OUTRIDER_KERNELS`` chooses another implementation.

    Raises:
        LevelError: ``OUTRIDER_NATIVE_LEVEL`` is wrong.
    """
    if choice() not in ("auto", "native"):
        return None
    try:
        return library()
    except NativeUnavailable:
        return None


def takes_triton(device: torch.device) -> bool:
    """Whether ops on ``device`` run as Triton kernels; with ``triton`` chosen, they do on any device.

    On a CPU they then run in Triton's interpreter, which needs ``TRITON_INTERPRET=1`` and is for tests.
    """
    chosen = choice()
    return chosen == "triton" or (chosen == "auto" and device.type == "cuda" and _installed())


def triton_notice(device: str) -> str | None:
    """One line for users where ops on a GPU have no Triton; None elsewhere."""
    if not device.startswith("cuda") or _installed():
        return None
    return "Triton is not installed, and ops on the GPU run in PyTorch, much slower: pip install 'outrider[gpu]'"


@cache
def _installed() -> bool:
    return importlib.util.find_spec("triton") is not None
