"""A client's schema, the places in it, and what makes it malformed."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any, NamedTuple
from urllib.parse import unquote, urldefrag, urljoin

_DATA = {"const", "default", "enum", "example", "examples"}
"""Keywords whose values hold no schemas."""


class MalformedSchema(Exception):
    """A schema that is none; ``pointer`` is a JSON pointer to the keyword, ``why`` follows it in the message."""

    def __init__(self, pointer: str, why: str) -> None:
        super().__init__(f"{pointer} {why}")
        self.pointer, self.why = pointer, why


class Place(NamedTuple):
    """A place in a schema: the schema there, and its JSON pointer."""

    schema: Any
    pointer: str

    def at(self, *steps: str | int) -> Place:
        """The place behind ``steps``, names and indices."""
        schema, pointer = self
        for step in steps:
            schema, pointer = schema[step], f"{pointer}/{_escaped(step)}"
        return Place(schema, pointer)

    def each(self, keyword: str) -> Iterator[Place]:
        """The places of the schemas that a keyword lists; none if the keyword is absent."""
        values = self.schema.get(keyword, ())
        return (self.at(keyword, step) for step in (values if isinstance(values, dict) else range(len(values))))


class Document:
    """A client's whole schema."""

    def __init__(self, schema: Any) -> None:
        self.root = Place(schema, "")

    @cached_property
    def old(self) -> bool:
        """Whether the schema is of a draft in which nothing applies beside ``$ref``."""
        return isinstance(self.root.schema, dict) and "draft-0" in str(self.root.schema.get("$schema", ""))

    def target(self, place: Place) -> Place:
        """The place that the ``$ref`` at ``place`` names; `MalformedSchema` if there is none."""
        pointer, ref = f"{place.pointer}/$ref", place.schema["$ref"]
        try:
            address, fragment = urldefrag(urljoin(self._base(place.pointer), ref))
            fragment = unquote(fragment)
            inside = fragment == "" or fragment.startswith("/")
            found = self._find(self._named[address] + fragment if inside else self._named[f"{address}#{fragment}"])
        except (LookupError, ValueError, TypeError):
            found = None
        if found is None or not isinstance(found.schema, dict | bool):
            raise MalformedSchema(pointer, f"must name a schema inside this one, not {str(ref)[:200]}")
        return found

    def _find(self, pointer: str) -> Place:
        place = self.root
        for step in pointer.split("/")[1:]:
            name = step.replace("~1", "/").replace("~0", "~")
            place = place.at(int(name) if isinstance(place.schema, list) else name)
        return place

    def _base(self, pointer: str) -> str:
        while pointer not in self._bases:
            pointer = pointer.rpartition("/")[0]
        return self._bases[pointer]

    @cached_property
    def _bases(self) -> dict[str, str]:
        """The addresses of the schemas with an ``$id``, by pointer."""
        bases = {"": ""}
        for place, base in _identified(self.root, ""):
            bases[place.pointer] = base
        return bases

    @cached_property
    def _named(self) -> dict[str, str]:
        """The pointers of the schemas that have an address."""
        named = {"": ""}
        for place, base in _identified(self.root, ""):
            named[base] = place.pointer
        for place in _dicts(self.root):
            for keyword in ("$anchor", "$dynamicAnchor"):
                if isinstance(anchor := place.schema.get(keyword), str):
                    named[f"{self._base(place.pointer)}#{anchor}"] = place.pointer
        return named


def _identified(place: Place, base: str) -> Iterator[tuple[Place, str]]:
    """The places with an ``$id``, each with its address."""
    bases = {"": base}
    for inside in _dicts(place):
        identity = inside.schema.get("$id")
        if not isinstance(identity, str):
            continue
        around = inside.pointer
        while around not in bases:
            around = around.rpartition("/")[0]
        address = urljoin(bases[around], identity)
        if not identity.startswith("#"):
            address = urldefrag(address).url
            bases[inside.pointer] = address
        yield inside, address


def _dicts(place: Place) -> Iterator[Place]:
    if isinstance(place.schema, dict):
        yield place
        for name in place.schema:
            if name not in _DATA:
                yield from _dicts(place.at(name))
    elif isinstance(place.schema, list):
        for index in range(len(place.schema)):
            yield from _dicts(place.at(index))


def _escaped(step: str | int) -> str:
    return str(step).replace("~", "~0").replace("/", "~1")
