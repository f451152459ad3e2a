"""The OpenAPI document, made from the types that the gateway reads and answers with."""

from __future__ import annotations

import re
import typing
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import msgspec
from outrider.gateway.api.http.edge import guarded
from outrider.gateway.api.openapi.constraints import COMPONENTS, PATHS
from outrider.gateway.api.openapi.ollama_operations import LLAMA_OPERATIONS, OLLAMA_OPERATIONS
from outrider.gateway.api.openapi.operations import OPERATIONS, BodySpec, Operation, errors_of
from outrider.gateway.api.schema.ignored import HEADER
from outrider.gateway.api.schema.parameters import ABSENT, ALIASES, ANY
from outrider.mesh.errors import OutriderError
from starlette.routing import Route

_REFERENCE = "#/components/schemas/{name}"
_IMPLICIT_METHODS = {"HEAD"}
"""Methods that starlette answers by itself."""
_DIALECT = "3.1.0"
_ADMIN = "/admin/"
_LICENSE = {"name": "Apache-2.0", "identifier": "Apache-2.0"}
_REQUEST_ID = {"schema": {"type": "string"}, "required": True, "description": "The request's id."}

_IGNORED = {"schema": {"type": "string"}, "description": "Parameters that had no effect, separated by commas."}
_RETRY_AFTER = {"schema": {"type": "string"}, "description": "Seconds until another try makes sense."}


def document(
    routes: Iterable[Route],
    version: str,
    *,
    strict: bool = False,
    operations: Mapping[tuple[str, str], Operation] = OPERATIONS | OLLAMA_OPERATIONS | LLAMA_OPERATIONS,
) -> dict[str, Any]:
    """The document of all ``routes``; raises `KeyError` for a route that ``operations`` lack.

    If ``strict``, bodies may not hold parameters that are unknown or have no effect.
    """
    schemas = _Schemas(strict)
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        path = re.sub(r":path}", "}", route.path)
        for method in sorted((route.methods or set()) - _IMPLICIT_METHODS):
            operation = _operation(path, method, operations[method, path], schemas)
            paths.setdefault(path, {})[method.lower()] = operation
    return {
        "openapi": _DIALECT,
        "info": {
            "title": "Outrider",
            "version": version,
            "license": _LICENSE,
        },
        "paths": paths,
        "components": {"schemas": schemas.components, "securitySchemes": _SECURITY},
    }


_SECURITY = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
}


class _Schemas:
    """Schemas of types, and the components that they refer to; ``strict`` is as in `document`."""

    def __init__(self, strict: bool = False) -> None:
        self._strict = strict
        self.components: dict[str, Any] = {}

    def of(self, kind: Any) -> dict[str, Any]:
        (schema,), components = msgspec.json.schema_components([kind], ref_template=_REFERENCE)
        for name, component in components.items():
            component |= {"allOf": [COMPONENTS[name]]} if name in COMPONENTS else {}
            if self.components.setdefault(name, component) != component:
                raise ValueError(f"two types are called {name}")
        return schema

    def any_of(self, kinds: Sequence[Any]) -> dict[str, Any]:
        schemas = [self.of(kind) for kind in kinds]
        return schemas[0] if len(schemas) == 1 else {"anyOf": schemas}

    def parameters(self, spec: BodySpec) -> dict[str, dict[str, Any]]:
        """The schema of each parameter that `read` knows; all parameters may be null, which counts as absent."""
        hints = typing.get_type_hints(spec.kind, include_extras=True) | dict(spec.refined)
        schemas = {name: hint if isinstance(hint, dict) else self.of(hint) for name, hint in hints.items()}
        supported = {name: _nullable(schema, ABSENT.get(name, ())) for name, schema in schemas.items()}
        altering, idle = spec.unsupported.altering.items(), spec.unsupported.idle.items()
        altering_schemas = {name: _neutral(values) for name, values in altering}
        idle_schemas = {name: _neutral(values if self._strict else ANY) for name, values in idle}
        aliases = {
            alias: _nullable(schemas[own], ABSENT.get(own, ())) for alias, own in ALIASES.items() if own in schemas
        }
        return altering_schemas | idle_schemas | aliases | supported

    def body(self, spec: BodySpec) -> dict[str, Any]:
        required = [field.name for field in msgspec.structs.fields(spec.kind) if field.required]
        if spec.kind.__name__ not in self.components:
            schema = {"type": "object", "properties": self.parameters(spec), "additionalProperties": not self._strict}
            for name in spec.untyped:
                self.components[name]["required"].remove("type")
            schema |= ({"required": required} if required else {}) | ({"allOf": [*spec.rules]} if spec.rules else {})
            self.components[spec.kind.__name__] = schema
        return {"$ref": _REFERENCE.format(name=spec.kind.__name__)}


def _operation(path: str, method: str, operation: Operation, schemas: _Schemas) -> dict[str, Any]:
    answers = _answers(operation, schemas)
    if operation.body is not None and "200" in answers:
        answers["200"]["headers"][HEADER] = _IGNORED
    document: dict[str, Any] = {
        "summary": operation.summary,
        "operationId": re.sub(r"\W+", "_", f"{method.lower()}{path}").strip("_"),
        "parameters": [*_path(path), *_queries(operation, schemas), *map(_header, operation.headers.items())],
        "responses": answers | _errors(errors_of(path, operation), schemas.any_of(operation.error)),
    }
    if operation.body is not None:
        content: dict[str, Any] = {"schema": schemas.body(operation.body), "example": operation.body.example}
        document["requestBody"] = {"required": True, "content": {"application/json": content}}
    if guarded(path):
        document["security"] = [*([] if path.startswith(_ADMIN) else [{}]), {"bearer": []}, {"key": []}]
    return document


def _path(path: str) -> list[dict[str, Any]]:
    schemas = {name: PATHS.get((path, name), {"type": "string"}) for name in re.findall(r"{(\w+)}", path)}
    return [{"name": name, "in": "path", "required": True, "schema": schema} for name, schema in schemas.items()]


def _queries(operation: Operation, schemas: _Schemas) -> list[dict[str, Any]]:
    if operation.query is None:
        return []
    hints = typing.get_type_hints(operation.query, include_extras=True)
    by_name = {name: schemas.of(hint) for name, hint in hints.items()}
    return [{"name": name, "in": "query", "schema": schema} for name, schema in by_name.items()]


def _header(entry: tuple[str, Any]) -> dict[str, Any]:
    return {"name": entry[0], "in": "header", "schema": _Schemas().of(entry[1])}


def _answers(operation: Operation, schemas: _Schemas) -> dict[str, Any]:
    content: dict[str, Any] = {}
    if operation.answer is not None:
        answer = operation.answer if isinstance(operation.answer, tuple) else (operation.answer,)
        content["application/json"] = {"schema": schemas.any_of(answer)}
    if operation.events:
        content["text/event-stream"] = {
            "schema": _event([schemas.of(event) for event in operation.events], operation.done)
        }
    if operation.lines:
        content["application/x-ndjson"] = {"schema": schemas.any_of(operation.lines)}
    if operation.text:
        content["text/plain"] = {"schema": {"type": "string"}}
    if operation.page:
        content["text/html"] = {"schema": {"type": "string"}}
    answers = {"200": _response("The request succeeded.", content)} if content else {}
    answers |= {"304": _response("The page has not changed.", {})} if operation.page else {}
    return answers | ({"204": _response(operation.empty, {})} if operation.empty else {})


def _event(kinds: list[dict[str, Any]], done: bool) -> dict[str, Any]:
    """The schema of one server-sent event, as OpenAPI before 3.2 has it; with ``done`` the last one is ``[DONE]``."""
    data: dict[str, Any] = {"type": "string", "contentMediaType": "application/json"}
    data["contentSchema"] = {"anyOf": kinds}
    fields: dict[str, Any] = {name: {"type": "string"} for name in ("event", "id")}
    fields["retry"] = {"type": "integer"}
    fields["data"] = {"anyOf": [{"const": "[DONE]"}, data]} if done else data
    return {"type": "object", "properties": fields, "required": ["data"]}


def _errors(kinds: Collection[type[OutriderError]], schema: dict[str, Any]) -> dict[str, Any]:
    """Error answers by status, each described by the docstrings of its errors; all have the ``schema``."""
    answers: dict[str, Any] = {}
    for status in dict.fromkeys(kind.http_status for kind in kinds):
        same = [kind for kind in kinds if kind.http_status == status]
        description = " ".join((kind.__doc__ or "").partition("\n")[0] for kind in same)
        entry = answers[str(status)] = _response(description, {"application/json": {"schema": schema}})
        if any(kind.retryable for kind in same):
            entry["headers"]["retry-after"] = _RETRY_AFTER | {"required": all(kind.retryable for kind in same)}
    return answers


def _response(description: str, content: Mapping[str, Any]) -> dict[str, Any]:
    response = {"description": description, "headers": {"x-request-id": _REQUEST_ID}}
    return response | ({"content": content} if content else {})


def _neutral(values: tuple[Any, ...]) -> dict[str, Any]:
    """The schema of an unsupported parameter, which allows its neutral ``values``; no values allow everything."""
    return {"enum": [*values, *(() if None in values else (None,))]} if values else {}


def _nullable(schema: dict[str, Any], absent: tuple[Any, ...]) -> dict[str, Any]:
    """``schema``, extended by the values of an absent parameter: null, and those in ``absent``."""
    if absent:
        return {"anyOf": [schema, {"enum": [*absent, None]}]}
    return schema if {"type": "null"} in schema.get("anyOf", ()) else {"anyOf": [schema, {"type": "null"}]}
