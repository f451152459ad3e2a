"""The engine as a library: a target, its drafters and all that decides tokens, in the process that calls it.

    from outrider.engine import LLM, SamplingParams

`docs/library.md` describes these names. They are imported when they are used, since rooms such as `store` and `text`
serve processes without torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from outrider.engine.needs import need

if TYPE_CHECKING:
    from outrider.engine.errors import EngineStopped, MissingPackage, ModelError, RequestError, SettingsError
    from outrider.engine.library.llm import LLM
    from outrider.engine.library.results import Guesses, Increment, Result
    from outrider.engine.library.sampling_params import SamplingParams
    from outrider.engine.library.streams import AsyncStream, Stream

_MODULES = {
    "AsyncStream": "library.streams",
    "EngineStopped": "errors",
    "Guesses": "library.results",
    "Increment": "library.results",
    "LLM": "library.llm",
    "MissingPackage": "errors",
    "ModelError": "errors",
    "RequestError": "errors",
    "Result": "library.results",
    "SamplingParams": "library.sampling_params",
    "SettingsError": "errors",
    "Stream": "library.streams",
}

__all__ = [
    "LLM",
    "AsyncStream",
    "EngineStopped",
    "Guesses",
    "Increment",
    "MissingPackage",
    "ModelError",
    "RequestError",
    "Result",
    "SamplingParams",
    "SettingsError",
    "Stream",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(need(f"{__name__}.{_MODULES[name]}", "models in this process"), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
