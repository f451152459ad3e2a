"""The OpenAPI document, made of what the gateway itself checks with and answers with."""

from __future__ import annotations

import re
import typing
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import msgspec
from outrider.gateway.doors.http.guard import guarded
from outrider.gateway.doors.openapi.closer import COMPONENTS, PATHS
from outrider.gateway.doors.openapi.operations import OPERATIONS, Given, Operation, errors_of
from outrider.gateway.doors.schema.ignored import HEADER
from outrider.gateway.doors.schema.parameters import ABSENT, ANY
from outrider.gateway.errors import ErrorAnswer
from outrider.mesh.errors import OutriderError
from starlette.routing import Route

_REFERENCE = "#/components/schemas/{name}"
_UNREAD = {"HEAD"}
"""What starlette answers by itself."""
_DIALECT = "3.1.0"
_LICENSE = {"name": "Apache-2.0", "identifier": "Apache-2.0"}
_REQUEST_ID = {"schema": {"type": "string"}, "required": True, "description": "The request's id."}

_IGNORED = {"schema": {"type": "string"}, "description": "Parameters that had no effect, separated by commas."}
_RETRY_AFTER = {"schema": {"type": "string"}, "description": "Seconds until another try makes sense."}


def document(routes: Iterable[Route], version: str, *, strict: bool = False) -> dict[str, Any]:
    """The document of all ``routes``; `KeyError` for one of which `OPERATIONS` says nothing.

    Where it is ``strict``, bodies may hold no parameter that is unknown or has no effect.
    """
    schemas = _Schemas(strict)
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        path = re.sub(r":path}", "}", route.path)
        for method in sorted((route.methods or set()) - _UNREAD):
            made = _operation(path, method, OPERATIONS[method, path], schemas)
            paths.setdefault(path, {})[method.lower()] = made
    return {
        "openapi": _DIALECT,
        "info": {
            "title": "Outrider",
            "version": version,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {"schemas": schemas.components, "securitySchemes": _SECURITY},
    }


_SECURITY = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
}


class _Schemas:
    """Schemas of types, and the components that they refer to; ``strict`` as in `document`."""

    def __init__(self, strict: bool = False) -> None:
        self._strict = strict
        self.components: dict[str, Any] = {}

    def of(self, kind: Any) -> dict[str, Any]:
        (made,), found = msgspec.json.schema_components([kind], ref_template=_REFERENCE)
        for name, schema in found.items():
            schema |= {"allOf": [COMPONENTS[name]]} if name in COMPONENTS else {}
            if self.components.setdefault(name, schema) != schema:
                raise ValueError(f"two types are called {name}")
        return made

    def parameters(self, given: Given) -> dict[str, dict[str, Any]]:
        """The schema of each parameter that `read` takes or refuses by name; null is as good as absent."""
        hints = typing.get_type_hints(given.kind, include_extras=True) | dict(given.closer)
        schemas = {name: hint if isinstance(hint, dict) else self.of(hint) for name, hint in hints.items()}
        made = {name: _nullable(schema, ABSENT.get(name, ())) for name, schema in schemas.items()}
        altering, idle = given.unhonoured.altering.items(), given.unhonoured.idle.items()
        passed = {name: _neutral(values) for name, values in altering}
        return passed | {name: _neutral(values if self._strict else ANY) for name, values in idle} | made

    def body(self, given: Given) -> dict[str, Any]:
        required = [field.name for field in msgspec.structs.fields(given.kind) if field.required]
        if given.kind.__name__ not in self.components:
            made = {"type": "object", "properties": self.parameters(given), "additionalProperties": not self._strict}
            for name in given.untyped:
                self.components[name]["required"].remove("type")
            made |= ({"required": required} if required else {}) | ({"allOf": [*given.rules]} if given.rules else {})
            self.components[given.kind.__name__] = made
        return {"$ref": _REFERENCE.format(name=given.kind.__name__)}


def _operation(path: str, method: str, said: Operation, schemas: _Schemas) -> dict[str, Any]:
    answers = _answers(said, schemas)
    if said.body is not None and "200" in answers:
        answers["200"]["headers"][HEADER] = _IGNORED
    made: dict[str, Any] = {
        "summary": said.summary,
        "operationId": re.sub(r"\W+", "_", f"{method.lower()}{path}").strip("_"),
        "parameters": [*_path(path), *_queries(said, schemas), *map(_header, said.headers.items())],
        "responses": answers | _errors(errors_of(path, said), schemas),
    }
    if said.body is not None:
        content: dict[str, Any] = {"schema": schemas.body(said.body), "example": said.body.example}
        made["requestBody"] = {"required": True, "content": {"application/json": content}}
    if guarded(path):
        made["security"] = [{}, {"bearer": []}, {"key": []}]
    return made


def _path(path: str) -> list[dict[str, Any]]:
    schemas = {name: PATHS.get((path, name), {"type": "string"}) for name in re.findall(r"{(\w+)}", path)}
    return [{"name": name, "in": "path", "required": True, "schema": schema} for name, schema in schemas.items()]


def _queries(said: Operation, schemas: _Schemas) -> list[dict[str, Any]]:
    if said.query is None:
        return []
    hints = typing.get_type_hints(said.query.kind, include_extras=True)
    made = {name: schemas.of(hint) for name, hint in hints.items()}
    made |= {name: {"enum": list(values)} for name, values in said.query.neutral.items()}
    return [{"name": name, "in": "query", "schema": schema} for name, schema in made.items()]


def _header(entry: tuple[str, Any]) -> dict[str, Any]:
    return {"name": entry[0], "in": "header", "schema": _Schemas().of(entry[1])}


def _answers(said: Operation, schemas: _Schemas) -> dict[str, Any]:
    content: dict[str, Any] = {}
    if said.answer is not None:
        content["application/json"] = {"schema": schemas.of(said.answer)}
    if said.events:
        content["text/event-stream"] = {"schema": _event([schemas.of(event) for event in said.events], said.done)}
    if said.text:
        content["text/plain"] = {"schema": {"type": "string"}}
    if said.page:
        content["text/html"] = {"schema": {"type": "string"}}
    answers = {"200": _told("As asked.", content)} if content else {}
    answers |= {"304": _told("It is the one that was named.", {})} if said.page else {}
    return answers | ({"204": _told(said.empty, {})} if said.empty else {})


def _event(kinds: list[dict[str, Any]], done: bool) -> dict[str, Any]:
    """One server-sent event, as a stream's schema describes it before OpenAPI 3.2; the last may hold no JSON."""
    data: dict[str, Any] = {"type": "string", "contentMediaType": "application/json"}
    data["contentSchema"] = {"anyOf": kinds}
    fields: dict[str, Any] = {name: {"type": "string"} for name in ("event", "id")}
    fields["retry"] = {"type": "integer"}
    fields["data"] = {"anyOf": [{"const": "[DONE]"}, data]} if done else data
    return {"type": "object", "properties": fields, "required": ["data"]}


def _errors(kinds: Collection[type[OutriderError]], schemas: _Schemas) -> dict[str, Any]:
    """Answers by status, each described by the errors that have it."""
    told: dict[str, Any] = {}
    for status in dict.fromkeys(kind.http_status for kind in kinds):
        same = [kind for kind in kinds if kind.http_status == status]
        said = " ".join((kind.__doc__ or "").partition("\n")[0] for kind in same)
        entry = told[str(status)] = _told(said, {"application/json": {"schema": schemas.of(ErrorAnswer)}})
        if any(kind.retryable for kind in same):
            entry["headers"]["retry-after"] = _RETRY_AFTER | {"required": all(kind.retryable for kind in same)}
    return told


def _told(description: str, content: Mapping[str, Any]) -> dict[str, Any]:
    made = {"description": description, "headers": {"x-request-id": _REQUEST_ID}}
    return made | ({"content": content} if content else {})


def _neutral(values: tuple[Any, ...]) -> dict[str, Any]:
    """Of a parameter that is not honoured: the values that ask for nothing, which are all where none is named."""
    return {"enum": [*values, *(() if None in values else (None,))]} if values else {}


def _nullable(schema: dict[str, Any], absent: tuple[Any, ...]) -> dict[str, Any]:
    """``schema``, or a value that says that there is none: null, or one of ``absent``."""
    if absent:
        return {"anyOf": [schema, {"enum": [*absent, None]}]}
    return schema if {"type": "null"} in schema.get("anyOf", ()) else {"anyOf": [schema, {"type": "null"}]}
