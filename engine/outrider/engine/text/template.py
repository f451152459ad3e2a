"""Chat templates: Jinja in a sandbox, with the extensions of transformers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NoReturn

from jinja2 import TemplateError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from outrider.engine.text.errors import TextError


class ChatTemplate:
    """A compiled template; ``names`` are the special tokens that the template may use (`bos_token`, ...).

    The sandbox limits neither time nor memory: see `template_process`. `TextError` if the source is no valid template.
    """

    def __init__(self, source: str, names: Mapping[str, str]) -> None:
        try:
            self._template = _environment().from_string(source, globals=dict(names))
        except MemoryError:
            raise
        except Exception as error:  # Jinja compiles to Python, which has errors of its own
            raise TextError(f"the chat template does not compile: {error}") from None

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None,
        add_generation_prompt: bool,
        variables: Mapping[str, Any] | None = None,
    ) -> str:
        """Renders a chat; the template may also read ``variables``, of which ``documents`` is None unless given.

        `TextError` if the template raises an error, or a variable has the name of a part of the chat.
        """
        chat = {"messages": messages, "tools": tools, "add_generation_prompt": add_generation_prompt}
        for name in variables or {}:
            if name in chat:
                raise TextError(f"chat_template_kwargs may not hold {name}")
        try:
            return self._template.render({"documents": None, **(variables or {}), **chat})
        except MemoryError:
            raise
        except Exception as error:  # a template is untrusted code and may raise anything
            raise TextError(f"the chat template refuses these messages: {error}") from None


class _Generation(Extension):
    """Renders the body of ``{% generation %}``, with which training marks the assistant's part."""

    tags = {"generation"}  # noqa: RUF012 - Jinja's own declaration

    def parse(self, parser: Parser) -> nodes.Node | list[nodes.Node]:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    return environment


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise(message: str) -> NoReturn:
    raise TemplateError(message)
