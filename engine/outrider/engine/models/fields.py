"""Typed reading of a JSON object from an untrusted file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from outrider.engine.errors import ModelError


class Fields:
    """The fields of a JSON object, each read with its required type.

    Attributes:
        where: name of the object in messages.
        values: the fields.
    """

    def __init__(self, where: str, values: Mapping[str, Any]) -> None:
        self.where = where
        self.values = values

    @classmethod
    def read(cls, path: Path) -> Fields:
        """The object in a file; `ModelError` if the file holds none."""
        try:
            values = json.loads(path.read_text("utf-8"))
        except OSError as error:
            raise ModelError(f"{path} cannot be read: {error.strerror}") from None
        except ValueError as error:
            raise ModelError(f"{path} is not JSON: {error}") from None
        if not isinstance(values, dict):
            raise ModelError(f"{path} holds {_kind(values)}, not an object")
        return cls(str(path), values)

    def within(self, name: str) -> Fields | None:
        """The object in a field; None if the field is absent or null."""
        value = self.values.get(name)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise self.wrong(name, "an object")
        return Fields(f"{self.where}: {name}", value)

    def count(self, name: str, default: int | None = None) -> int:
        """A whole number of at least 1."""
        value = self._value(name, default)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise self.wrong(name, "a whole number of at least 1")
        return value

    def positive(self, name: str, default: float | None = None) -> float:
        """A number above 0."""
        value = self._value(name, default)
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < float("inf"):
            raise self.wrong(name, "a number above 0")
        return float(value)

    def flag(self, name: str, default: bool) -> bool:
        """True or false."""
        value = self._value(name, default)
        if not isinstance(value, bool):
            raise self.wrong(name, "true or false")
        return value

    def text(self, name: str, default: str | None = None) -> str:
        """A string."""
        value = self._value(name, default)
        if not isinstance(value, str):
            raise self.wrong(name, "a string")
        return value

    def wrong(self, name: str, allowed: str) -> ModelError:
        """The error for a field that is not ``allowed``."""
        if self.values.get(name) is None:
            return ModelError(f"{self.where}: {name} is missing; it must be {allowed}")
        return ModelError(f"{self.where}: {name} is {json.dumps(self.values[name])}; it must be {allowed}")

    def _value(self, name: str, default: Any) -> Any:
        value = self.values.get(name)
        return default if value is None else value


def _kind(value: object) -> str:
    return "null" if value is None else f"a {type(value).__name__}"
