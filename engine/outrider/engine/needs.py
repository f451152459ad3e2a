"""Packages that only parts of the engine need. They are imported where they are used: the rest works without them."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from outrider.engine.errors import MissingPackage


def need(package: str, users: str) -> Any:
    """The module ``package``; `MissingPackage` names ``users``, in the plural, if it or what it imports is missing."""
    try:
        return import_module(package)
    except ModuleNotFoundError as error:
        name = (error.name or package).partition(".")[0]
        if name == "outrider":
            raise
        raise MissingPackage(f"{name} is not installed, and {users} need it: pip install 'outrider[engine]'") from None
