"""Reads the arguments of a call as they arrive, and writes them as JSON."""

from __future__ import annotations

from typing import Protocol

from outrider.gateway.schemas.parameters import ParameterTypes
from outrider.gateway.tool_calls.json_scanner import JsonScanner
from outrider.gateway.tool_calls.python_arguments import PythonArguments
from outrider.gateway.tool_calls.tagged_arguments import TaggedArguments
from outrider.wire.call_formats.call_format import CallFormat


class Arguments(Protocol):
    """Reads the arguments of one call.

    Attributes:
        whole: Whether the arguments have ended.
    """

    whole: bool

    def split(self, text: str) -> tuple[str, str]:
        """The JSON of the arguments that ``text`` completes, and the rest, to be given again with the text after it."""
        ...


def arguments_of(form: CallFormat, types: ParameterTypes) -> Arguments:
    """What reads the arguments of a call in ``form`` of a function whose parameters have ``types``."""
    if form.arguments == "json":
        return JsonScanner()
    return PythonArguments() if form.arguments == "python" else TaggedArguments(form.arguments, types)
