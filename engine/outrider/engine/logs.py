"""Log lines of the engine: an event and its fields. They go to Python's `logging`, or where a service sends its own."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any


class _Service:
    loggers: Callable[[str], Any] | None = None


class _Logger:
    """The logger of one module, with the methods ``debug``, ``info``, ``warning`` and ``error``."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, level: str) -> Any:
        if _Service.loggers is not None:
            return getattr(_Service.loggers(self._name), level)
        return partial(_log, f"outrider.engine.{self._name}", level.upper())


def use_loggers(make: Callable[[str], Any]) -> None:
    """Sends all later lines to the loggers that ``make`` returns for a module's name, such as structlog's."""
    _Service.loggers = staticmethod(make)


def get_logger(name: str) -> Any:
    """The logger of the module ``name``: ``log.info("step measured", rows=[1, 2])``."""
    return _Logger(name)


def _log(logger: str, level: str, event: str, *, exc_info: BaseException | None = None, **fields: Any) -> None:
    line = " ".join([event, *(f"{key}={value!r}" for key, value in fields.items())])
    logging.getLogger(logger).log(getattr(logging, level), "%s", line, exc_info=exc_info)
