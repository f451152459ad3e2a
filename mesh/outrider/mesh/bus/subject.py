"""The form of subjects."""

from __future__ import annotations

import re
from functools import lru_cache

_SUBJECT = re.compile(r"[^\s.]+(\.[^\s.]+)*")
_CHECKED_SUBJECTS = 1024
"""Subjects whose check is cached: a running request's subject is checked with every token."""


@lru_cache(_CHECKED_SUBJECTS)
def is_subject(text: str) -> bool:
    """Whether ``text`` is a subject of NATS, wildcards included."""
    return _SUBJECT.fullmatch(text) is not None
