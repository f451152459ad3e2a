"""Names of the dtypes that keys and values are kept in."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from outrider.engine.errors import ModelError

KV_DTYPES = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "int8": torch.int8,
    "fp8": torch.float8_e4m3fn,
}
"""By name; int8 and fp8 are quants with a scale for each head of a token (`outrider.kernels.kv_quant`)."""


def chosen_kv_dtype(name: str, allowed: Sequence[torch.dtype]) -> torch.dtype:
    """The dtype of ``name``, of those that a model's steps take; ``auto`` is the first of them.

    Raises:
        ModelError: there is no such name, or the model takes no such pages on its device.
    """
    if name == "auto":
        return allowed[0]
    if name not in KV_DTYPES:
        raise ModelError(f"kv_dtype is {name!r}; it must be auto or one of {', '.join(KV_DTYPES)}")
    if KV_DTYPES[name] not in allowed:
        others = [known for known, dtype in KV_DTYPES.items() if dtype in allowed]
        raise ModelError(f"kv_dtype is {name!r}; this model on this device takes auto or {', '.join(others)}")
    return KV_DTYPES[name]
