"""The grammars of arguments that are not one JSON object.

Of the object's own schema, they enforce the names, their order, which are required, and whether there may be others.
The schemas of values are enforced but for the lengths and patterns of texts that stand as they are.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from typing import Any

from outrider.gateway.schemas.parameters import Parameters, kinds
from outrider.gateway.tool_calls.spelling import Spelling, as_templates_write, pattern
from outrider.wire.call_formats.call_format import CallFormat, Tags

_PYTHON_NAMES = {"boolean": ("True", "False"), "null": ("None",)}


class _ArgumentsLark:
    """Writes the rules of the arguments of one function, of which the first one is called ``name``."""

    def __init__(self, form: CallFormat, spelling: Spelling, name: str, parameters: Parameters) -> None:
        self._form, self._spelling, self._name, self._parameters = form, spelling, name, parameters

    def _json(self, schema: Any) -> str:
        inner = schema if isinstance(schema, dict) else {}
        if '"$ref"' in (text := json.dumps(inner)):
            inner = {"$defs": self._parameters.definitions, **inner}
        elif not self._parameters.types_of(schema) & {"array", "object"}:
            return f"%json {text}"
        return as_templates_write(inner)

    def _names(self, schema: Any) -> list[str]:
        """Python's names for values of ``schema`` that are no strings, arrays or objects, as literals."""
        schema, types = self._parameters.resolved(schema), self._parameters.types_of(schema)
        free = not isinstance(schema, dict) or not schema.keys() & {"enum", "const", "not", "allOf", "anyOf", "$ref"}
        known = [kind for kind in _PYTHON_NAMES if kind in types and (free or kind == "null")]
        return [json.dumps(name) for kind in known for name in _PYTHON_NAMES[kind]]

    def _unnamed(self, allowed: str) -> str:
        """An expression for a name in ``allowed`` that is none of the parameters' own."""
        own = "|".join(map(pattern, self._parameters.schemas))
        return f"/{allowed}/" + (f" & ~/{own}/" if own else "")


class TaggedLark(_ArgumentsLark):
    """Arguments between tags."""

    def rules(self) -> str:
        """The rules."""
        return "\n".join(self._rules())

    def _rules(self) -> Iterator[str]:
        tags, own = self._form.arguments, self._parameters
        assert isinstance(tags, Tags)
        items = []
        for number, (name, schema) in enumerate(own.schemas.items()):
            head = self._spelling.of(f"{tags.opening}{name}{'' if tags.json_middle else tags.middle}")
            optional = "" if name in own.required else "?"
            items.append(f"({head} {self._name}_{number}){optional}")
            yield from self._value(f"{self._name}_{number}", schema, tags)
        if own.more is not False:
            opening, middle = map(self._spelling.of, (tags.opening, "" if tags.json_middle else tags.middle))
            items.append(f"({opening} {self._name.upper()}_NAME {middle} {self._name}_more)*")
            yield f"{self._name.upper()}_NAME: {self._unnamed('[A-Za-z0-9_.-]+')}"
            yield from self._value(f"{self._name}_more", own.more, tags)
        yield f"{self._name}: {' '.join(items)}"

    def _value(self, rule: str, schema: Any, tags: Tags) -> Iterator[str]:
        """The rules of a value and the text that closes it."""
        types, closing = self._parameters.types_of(schema), self._spelling.of(tags.closing)
        resolved = self._parameters.resolved(schema)
        if tags.json_middle:
            text, other = map(self._spelling.of, (tags.middle, tags.json_middle))
            told = [f"{text} {rule}_text"] if "string" in types else []
            told += [f"{other} {self._json(schema)} {closing}"] if types - {"string"} else []
            yield f"{rule}: {' | '.join(told)}"
            if "string" in types:
                yield from self._text(f"{rule}_text", resolved, {"string"}, tags)
        elif "string" not in types:
            yield f"{rule}: ({' | '.join([self._json(schema), *self._names(schema)])}) {closing}"
        else:
            yield from self._text(rule, resolved, types, tags)

    def _text(self, rule: str, schema: Any, types: Collection[str], tags: Tags) -> Iterator[str]:
        """The rules of a value that stands as it is, of one of ``types``, and the text that closes it."""
        closing = self._spelling.of(tags.closing)
        if isinstance(schema, dict) and (listed := schema.get("enum", [schema.get("const")])) != [None]:
            texts = [text for value in listed if set(kinds(value)) & set(types) for text in _texts(value)]
            yield f"{rule}: ({' | '.join(map(json.dumps, texts))}) {closing}"
        elif (cut := self._spelling.cut(tags.closing)) and not cut[0].strip():
            yield f"{rule}: {rule.upper()}_TEXT {closing}"
            yield f"{rule.upper()}_TEXT: /(?s:.*)/"
        elif cut:
            yield f"{rule}: {rule.upper()}_TEXT {cut[1]}"
            yield f"{rule.upper()}_TEXT: /(?s:.*){pattern(cut[0])}/"
        else:
            yield f"{rule}[lazy]: /(?s:.*)/ {closing}"


class PythonLark(_ArgumentsLark):
    """Keyword arguments of Python; values may be those of JSON."""

    def rules(self) -> str:
        """The rules."""
        return "\n".join(self._rules())

    def _rules(self) -> Iterator[str]:
        own = self._parameters
        first, rest = [], "" if own.more is False else f"{self._name}_others"
        if rest:
            yield f'{self._name}_other: {self._name.upper()}_NAME "=" {self._value(own.more)}'
            yield f'{rest}: (", " {self._name}_other)*'
            yield f"{self._name.upper()}_NAME: {self._unnamed('[A-Za-z_][A-Za-z0-9_]*')}"
            first = ["", f"{self._name}_other {rest}"]
        if not first:
            first = [""]
        for number, (name, schema) in reversed([*enumerate(own.schemas.items())]):
            rule = f"{self._name}_{number}"
            yield f"{rule}: {self._spelling.of(name + '=')} {self._value(schema)}"
            first = [*(first if name not in own.required else ()), f"{rule} {rest}"]
            yield f'{rule}_rest: (", " {rule}){"" if name in own.required else "?"} {rest}'
            rest = f"{rule}_rest"
        yield f"{self._name}: {' | '.join(first)}"

    def _value(self, schema: Any) -> str:
        resolved = self._parameters.resolved(schema)
        values = [self._json(schema), *self._names(schema)]
        if isinstance(resolved, dict) and resolved.keys() <= _PLAIN and self._parameters.types_of(schema) == {"string"}:
            values.append(r"/'([^'\\\x00-\x1f]|\\[nrt'\"\\])*'/")
        return f"({' | '.join(values)})"


def _texts(value: Any) -> list[str]:
    """What stands for ``value`` between tags."""
    if isinstance(value, str):
        return [value]
    made = [json.dumps(value, ensure_ascii=False)]
    return [*made, str(value)] if isinstance(value, bool | None) else made


_PLAIN = {"type", "description", "title", "default", "examples"}
"""Keywords of a schema whose strings may be any."""
