"""The gateway's HTTP routes."""

from __future__ import annotations

from importlib.metadata import version

from outrider.gateway.admission.access_control import AccessControl
from outrider.gateway.api.admin.guard import AdminGuard
from outrider.gateway.api.admin.routes import AdminRoutes
from outrider.gateway.api.anthropic.routes import MessagesRoutes
from outrider.gateway.api.embeddings.embedder import Embedder
from outrider.gateway.api.embeddings.routes import EmbeddingRoutes
from outrider.gateway.api.http.cors import with_cors
from outrider.gateway.api.http.edge import Edge, Guard, PathRouter
from outrider.gateway.api.http.messages import json_response
from outrider.gateway.api.llama.routes import LlamaRoutes
from outrider.gateway.api.ollama.routes import OllamaRoutes
from outrider.gateway.api.openai.resumption import StreamRoutes
from outrider.gateway.api.openai.routes import OpenAiRoutes
from outrider.gateway.api.openapi.admin_operations import ADMIN_OPERATIONS
from outrider.gateway.api.openapi.document import document
from outrider.gateway.api.own.model_list import ModelRoutes
from outrider.gateway.api.own.named_prompts import PromptRoutes
from outrider.gateway.api.own.readiness import Health, Ready, Version, ready_models
from outrider.gateway.api.own.tokenizing import TokenizeRoutes
from outrider.gateway.api.playground.page import Playground
from outrider.gateway.api.responses.routes import ResponseRoutes
from outrider.gateway.api.schema.thoughts import Seal
from outrider.gateway.request.in_flight import Flights
from outrider.gateway.request.intake import Generations
from outrider.gateway.settings import GatewaySettings
from outrider.mesh.errors import Unavailable
from outrider.mesh.registry import State
from outrider.mesh.service import Mesh
from outrider.mesh.telemetry import render
from outrider.mesh.telemetry.metrics import CONTENT_TYPE
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp


def make_app(mesh: Mesh, flights: Flights, settings: GatewaySettings, access: AccessControl) -> ASGIApp:
    """The ASGI application with all APIs over HTTP, and the routes for operators; ``access`` admits requests."""
    generations = Generations(flights, settings)
    seal, embedder = Seal.with_file(settings.thought_key_file), Embedder(generations, flights)

    async def healthz(request: Request) -> Response:
        return json_response(Health())

    async def readyz(request: Request) -> Response:
        if mesh.registry.state == State.DRAINING:
            raise Unavailable("this gateway is about to end", retry_after=1.0)
        models = await ready_models(generations.models)
        if not models:
            raise Unavailable("no model has both a tokenizer and a verifier that answer", retry_after=1.0)
        if (trouble := flights.catalog.trouble) is not None:
            return json_response(Ready(models, "degraded", f"new streams cannot be resumed for now: {trouble}"))
        return json_response(Ready(models))

    async def metrics(request: Request) -> Response:
        return Response(render(), media_type=CONTENT_TYPE)

    async def openapi(request: Request) -> Response:
        return JSONResponse(openapi_document)

    async def outrider_version(request: Request) -> Response:
        return json_response(Version(version("outrider")))

    operator_routes = [
        *(Playground().routes if settings.playground else []),
        Route("/healthz", healthz),
        Route("/readyz", readyz),
        Route("/health", readyz),
        Route("/ping", readyz, methods=["GET", "POST"]),
        Route("/version", outrider_version),
        Route("/metrics", metrics),
        Route("/openapi.json", openapi),
    ]
    api_routes = [
        *OpenAiRoutes(generations, flights, settings).routes,
        *ModelRoutes(generations.models).routes,
        *ResponseRoutes(generations, flights, settings, seal).routes,
        *MessagesRoutes(generations, flights, settings, seal).routes,
        *EmbeddingRoutes(embedder, settings).routes,
        *LlamaRoutes(generations, flights, settings).routes,
        *OllamaRoutes(generations, flights, settings, embedder).routes,
        *StreamRoutes(flights, settings).routes,
        *TokenizeRoutes(generations, settings).routes,
        *PromptRoutes(mesh.bus, mesh.registry, generations, settings).routes,
    ]
    strict = settings.parameters == "strict"
    openapi_document = document([*api_routes, *operator_routes], version("outrider"), strict=strict)
    edge = Edge(Guard(PathRouter([*api_routes, *operator_routes]), access), settings.body_idle_s)
    return with_cors(settings.cors_origins, edge)


def make_admin_app(mesh: Mesh, settings: GatewaySettings, access: AccessControl) -> ASGIApp:
    """The ASGI application of the admin API."""

    async def openapi(request: Request) -> Response:
        return JSONResponse(openapi_document)

    routes = [*AdminRoutes(mesh.bus, settings.limit_store).routes, Route("/openapi.json", openapi)]
    openapi_document = document(routes, version("outrider"), strict=True, operations=ADMIN_OPERATIONS)
    return Edge(AdminGuard(PathRouter(routes), access), settings.body_idle_s)
