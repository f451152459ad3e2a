"""Log lines of the engine: an event and its fields. They go to Python's `logging`, or where a service sends its own."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Protocol


class Logger(Protocol):
    """Takes log lines; structlog's loggers are of this form."""

    def debug(self, event: str, **fields: Any) -> Any:
        """Logs an event that helps to find a fault."""

    def info(self, event: str, **fields: Any) -> Any:
        """Logs an event of normal operation."""

    def warning(self, event: str, **fields: Any) -> Any:
        """Logs an event that needs attention."""

    def error(self, event: str, **fields: Any) -> Any:
        """Logs a fault; the field ``exc_info`` is its exception."""


class _PlainLogger:
    """Writes lines such as ``step measured rows=[1, 2]`` to the logger ``outrider.engine.NAME``."""

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(f"outrider.engine.{name}")

    def debug(self, event: str, **fields: Any) -> None:
        self._write(logging.DEBUG, event, fields)

    def info(self, event: str, **fields: Any) -> None:
        self._write(logging.INFO, event, fields)

    def warning(self, event: str, **fields: Any) -> None:
        self._write(logging.WARNING, event, fields)

    def error(self, event: str, **fields: Any) -> None:
        self._write(logging.ERROR, event, fields)

    def _write(self, level: int, event: str, fields: dict[str, Any]) -> None:
        if self._logger.isEnabledFor(level):
            error = fields.pop("exc_info", None)
            self._logger.log(level, "%s", " ".join([event, *(f"{k}={v!r}" for k, v in fields.items())]), exc_info=error)


class _Loggers:
    make: Callable[[str], Logger] = _PlainLogger


class _NamedLogger:
    """The logger of a module; each line goes to the loggers in use at that time."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, level: str) -> Any:
        return getattr(_Loggers.make(self._name), level)


def use_loggers(make: Callable[[str], Logger]) -> None:
    """Sends all later lines of the engine to the loggers that ``make`` returns for a module's name."""
    _Loggers.make = staticmethod(make)


def get_logger(name: str) -> Logger:
    """The logger of the module ``name``."""
    return _NamedLogger(name)
