"""A client's schema, and the places in it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any, NamedTuple
from urllib.parse import unquote, urldefrag, urljoin

_DATA = {"const", "default", "enum", "examples"}
"""Keywords whose values hold no schemas."""


class MalformedSchema(Exception):
    """A schema that is none; ``pointer`` is the JSON pointer to the place, and ``why`` follows it in a message."""

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
            schema, pointer = schema[step], self.below(step, pointer)
        return Place(schema, pointer)

    def below(self, step: str | int, pointer: str | None = None) -> str:
        """The pointer to what is behind ``step``."""
        return f"{self.pointer if pointer is None else pointer}/{str(step).replace('~', '~0').replace('/', '~1')}"

    def each(self, keyword: str) -> Iterator[Place]:
        """The places of the schemas that ``keyword`` lists; none without the keyword."""
        return (self.at(keyword, index) for index in range(len(self.schema.get(keyword, ()))))


class Document:
    """A client's whole schema."""

    def __init__(self, schema: Any) -> None:
        self.root = Place(schema, "")
        self._bases: dict[str, str] = {}
        self._pointers: dict[str, str] = {}

    @cached_property
    def old(self) -> bool:
        """Whether the schema is of a draft in which nothing applies beside ``$ref``."""
        return isinstance(self.root.schema, dict) and "draft-0" in str(self.root.schema.get("$schema", ""))

    def target(self, place: Place) -> Place | None:
        """The place that the ``$ref`` at ``place`` names; None if it is in another document, which nobody fetches.

        Raises `MalformedSchema` if it would be in this document, and is not.
        """
        ref = place.schema["$ref"]
        try:
            return self._find(place.pointer, ref)
        except (LookupError, ValueError, TypeError):
            why = f"must name a schema inside this one, not {ref[:200]}"
            raise MalformedSchema(place.below("$ref"), why) from None

    def _find(self, pointer: str, ref: str) -> Place | None:
        if not self._bases:
            self._address(self.root, "")
        while pointer not in self._bases:
            pointer = pointer.rpartition("/")[0]
        base = self._bases[pointer]
        address, fragment = urldefrag(base + ref if ref.startswith("#") else urljoin(base, ref))
        if address not in self._pointers and not ref.startswith("#"):
            return None
        if fragment and not fragment.startswith("/"):
            address, fragment = f"{address}#{fragment}", ""
        place = self.root
        for step in (self._pointers[address] + unquote(fragment)).split("/")[1:]:
            name = step.replace("~1", "/").replace("~0", "~")
            place = place.at(int(name) if isinstance(place.schema, list) else name)
        if not isinstance(place.schema, dict | bool):
            raise LookupError
        return place

    def _address(self, place: Place, base: str) -> None:
        """Notes the addresses of the schemas at ``place`` and behind it."""
        schema = place.schema
        if isinstance(schema, dict):
            identity = None if self.old and "$ref" in schema else schema.get("$id")
            if isinstance(identity, str) and not identity.startswith("#"):
                base = urldefrag(urljoin(base, identity)).url
            elif isinstance(identity, str):  # a name for the place, in draft 7
                self._pointers.setdefault(base + identity, place.pointer)
            if base not in self._pointers or not place.pointer:
                self._pointers.setdefault(base, place.pointer)
                self._bases[place.pointer] = base
            for keyword in ("$anchor", "$dynamicAnchor"):
                if isinstance(anchor := schema.get(keyword), str):
                    self._pointers.setdefault(f"{base}#{anchor}", place.pointer)
        inside = (
            schema.keys() - _DATA if isinstance(schema, dict) else range(len(schema) if isinstance(schema, list) else 0)
        )
        for step in inside:
            self._address(place.at(step), base)
