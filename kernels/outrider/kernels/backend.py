"""Chooses between the two implementations of an op: plain torch, and Triton."""

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
    """What the environment variable ``OUTRIDER_KERNELS`` asks for.

    ``auto`` (the default) is Triton on CUDA devices where it is installed, and torch elsewhere, but for whole decoders
    on a CPU `outrider.native` where it is compiled. ``native`` insists on it.

    Raises:
        BackendError: it is none of `CHOICES`, or Triton was asked for by name and is not installed.
    """
    asked = os.environ.get("OUTRIDER_KERNELS", "auto")
    if asked not in CHOICES:
        raise BackendError(f"OUTRIDER_KERNELS is {asked!r}; it must be one of {', '.join(CHOICES)}")
    if asked == "triton" and not _installed():
        raise BackendError('OUTRIDER_KERNELS is "triton", which is not installed: pip install "outrider[gpu]"')
    return asked


def compiled() -> Library | None:
    """The compiled library; None where ``OUTRIDER_KERNELS`` asks for another way, or there is none."""
    if choice() not in ("auto", "native"):
        return None
    try:
        return library()
    except NativeUnavailable:
        return None


def takes_triton(device: torch.device) -> bool:
    """Whether ops on ``device`` run as Triton kernels; asked for by name, they do on any device.

    On a CPU they then run in Triton's interpreter, which wants ``TRITON_INTERPRET=1`` and is for tests.
    """
    asked = choice()
    return asked == "triton" or (asked == "auto" and device.type == "cuda" and _installed())


@cache
def _installed() -> bool:
    return importlib.util.find_spec("triton") is not None
