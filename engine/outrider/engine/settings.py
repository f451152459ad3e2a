"""Settings of an engine. A verifier has them under the same names, and describes them (`outrider config show`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Determinism = Literal["strict", "fast"]
Integrity = Literal["off", "size", "full"]

_BY_DEVICE = {"max_running": (0, 64, 128), "prefill_rows": (0, 256, 512), "max_rows": (0, 320, 640)}
_BY_DEVICE |= {"max_guesses": (-1, 64, 256)}
"""The value that leaves a setting to the device, and what it stands for on a CPU and on a GPU.

A GPU takes about as long for some hundreds of rows as for one; the largest steps still run as CUDA graphs.
"""


@dataclass(frozen=True, kw_only=True)
class EngineSettings:
    """Settings of an engine: the target, its pages, the size of steps, and speculation.

    A setting that is left to the device gets the device's value when the object is made.
    """

    model: str = "pocket"
    integrity: Integrity = "size"
    served_name: str = ""
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    kv_dtype: Literal["auto", "float32", "bfloat16", "float16", "int8", "fp8"] = "auto"
    device: str = "cpu"
    determinism: Determinism = "strict"
    quantization: Literal["none", "int8", "int4", "fp8"] = "none"
    tensor_parallel: int = 1
    cuda_graphs: bool = True
    threads: int = 0
    pages: int = 0
    memory_fraction: float = 0.0
    memory_sharers: int = 1
    page_size: int = 16
    pinned_share: float = 0.5
    max_running: int = 0
    max_waiting: int = 256
    prefill_rows: int = 0
    max_rows: int = 0
    embedding_share: float = 0.1
    priority_aging_s: float = 10.0
    max_guesses: int = -1
    max_nodes: int = 31
    max_tenant_guesses: int = 0
    acceptance: str = "race"
    acceptance_options: Mapping[str, Any] = field(default_factory=dict)
    audit_share: float = 0.0
    drafters: Sequence[str] = ("auto",)
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Replaces settings that are left to the device by the device's values."""
        for name, (left, cpu, gpu) in _BY_DEVICE.items():
            if getattr(self, name) == left:
                object.__setattr__(self, name, gpu if self.device.startswith("cuda") else cpu)
