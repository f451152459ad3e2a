"""Settings of an engine. A verifier has them under the same names, and describes them (`outrider config show`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Determinism = Literal["strict", "fast"]
Integrity = Literal["off", "size", "full"]


@dataclass(frozen=True, kw_only=True)
class EngineSettings:
    """Settings of an engine: the target, its pages, the size of steps, and speculation."""

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
    max_running: int = 64
    max_waiting: int = 256
    prefill_rows: int = 256
    max_rows: int = 320
    embedding_share: float = 0.1
    priority_aging_s: float = 10.0
    max_guesses: int = 64
    max_nodes: int = 31
    max_tenant_guesses: int = 0
    acceptance: str = "race"
    acceptance_options: Mapping[str, Any] = field(default_factory=dict)
    audit_share: float = 0.0
    drafters: Sequence[str] = ("auto",)
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
