"""Named prompts as they are stored: beginnings of prompts that verifiers keep computed.

They are JSON in the key-value bucket `BUCKET`, each under `prompt_entry`.
"""

from __future__ import annotations

import hashlib
import re
from typing import Any

import msgspec

BUCKET = "outrider-prompts"
NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
MOST_BYTES = 256 << 10
"""Most bytes of a stored prompt with all its fields."""
MOST_PROMPTS = 64
"""Most prompts of a tenant."""


class NamedPrompt(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A text, or a chat's messages, of a ``model`` or of every one; ``created`` is in seconds since 1970.

    ``messages`` are rendered by the model's own template, without the opening of an answer. ``parse_special`` reads
    names of special tokens in ``text`` as those tokens, as completions do. ``residency`` holds the tags of verifiers
    that may keep the prompt; None for all. ``priority`` and ``weight`` are those of the caller: the prompt waits for
    its computation as the caller's requests do.
    """

    name: str
    tenant: str
    created: float
    model: str | None = None
    text: str | None = None
    messages: list[dict[str, Any]] | None = None
    parse_special: bool = True
    residency: tuple[str, ...] | None = None
    priority: int = 0
    weight: float = 1.0


def prompt_entry(tenant: str, name: str) -> str:
    """The key of a prompt in the bucket; with an empty name, the common prefix of a tenant's keys."""
    return f"{tenant}.{name}"


def prompt_mark(tenant: str, name: str, revision: int) -> str:
    """The mark by which verifiers announce that they keep a stored prompt; it does not reveal tenant and name."""
    return hashlib.sha256(f"{tenant}.{name}@{revision}".encode()).hexdigest()[:16]
