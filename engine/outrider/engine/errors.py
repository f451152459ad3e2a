"""Errors of the engine: each is one sentence for who can act on it. Services turn them into errors of their own."""

from __future__ import annotations


class ModelError(ValueError):
    """A model cannot be loaded; the message is one sentence that names the file or field."""


class EngineStopped(RuntimeError):
    """The engine has ended, by its owner or by an error; the message is one sentence that says which."""


class MissingPackage(ImportError):
    """A package is not installed; the message is one sentence that says what needs it, and how to install it."""


class RankLost(BaseException):
    """A rank of the model has ended, so that no step can run; the message is one sentence.

    No `Exception`, which fails a request: the engine itself has to end.
    """


class SettingsError(ValueError):
    """The settings cannot be used; the message is one sentence for the operator."""


class RequestError(ValueError):
    """The request can never succeed as it is.

    ``message`` is one sentence for the caller, ``param`` the parameter at fault.
    """

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message)
        self.message, self.param = message, param
