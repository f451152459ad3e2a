"""What `make test` leaves to `make test-all`."""

from __future__ import annotations

WHOLE: tuple[str, ...] = ("chaos",)
"""Folders, files and tests (`file.py::test_name`), by their paths in `tests`, that only `make test-all` runs."""


def is_whole(case: str) -> bool:
    """Whether only `make test-all` runs a case, given by its node id without `tests/`."""
    return any(case == name or case.startswith((f"{name}/", f"{name}::", f"{name}[")) for name in WHOLE)
