"""The gateway's HTTP routes."""

from __future__ import annotations

from importlib.metadata import version

from outrider.gateway.admission.entrance import Entrance
from outrider.gateway.doors.http.cors import shared_with
from outrider.gateway.doors.http.edge import Edge
from outrider.gateway.doors.http.guard import Guard
from outrider.gateway.doors.http.messages import json_response
from outrider.gateway.doors.http.paths import Paths
from outrider.gateway.doors.openai.resumption import Streams
from outrider.gateway.doors.openai.routes import OpenAi
from outrider.gateway.doors.openapi.document import document
from outrider.gateway.doors.own.named_prompts import Prompts
from outrider.gateway.doors.own.readiness import Health, Ready, Version, ready
from outrider.gateway.doors.own.tokenizing import Tokenizing
from outrider.gateway.doors.playground.page import Playground
from outrider.gateway.doors.responses.routes import Responses
from outrider.gateway.generation.in_flight import Flights
from outrider.gateway.generation.intake import Generations
from outrider.gateway.settings import GatewaySettings
from outrider.mesh.errors import Unavailable
from outrider.mesh.service import Mesh
from outrider.mesh.telemetry import render
from outrider.mesh.telemetry.metrics import CONTENT_TYPE
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp


def make_app(mesh: Mesh, flights: Flights, settings: GatewaySettings, entrance: Entrance) -> ASGIApp:
    """All front doors over HTTP, which ``entrance`` lets callers in by, and what operators ask."""
    generations = Generations(flights, settings)

    async def healthz(request: Request) -> Response:
        return json_response(Health())

    async def readyz(request: Request) -> Response:
        models = await ready(generations.models)
        if not models:
            raise Unavailable("no model has both a tokenizer and a verifier that answer", retry_after=1.0)
        if (trouble := flights.catalog.trouble) is not None:
            return json_response(Ready(models, "degraded", f"new streams cannot be resumed for now: {trouble}"))
        return json_response(Ready(models))

    async def metrics(request: Request) -> Response:
        return Response(render(), media_type=CONTENT_TYPE)

    async def openapi(request: Request) -> Response:
        return JSONResponse(described)

    async def told_version(request: Request) -> Response:
        return json_response(Version(version("outrider")))

    operations = [
        *(Playground().routes if settings.playground else []),
        Route("/healthz", healthz),
        Route("/readyz", readyz),
        Route("/health", readyz),
        Route("/ping", readyz, methods=["GET", "POST"]),
        Route("/version", told_version),
        Route("/metrics", metrics),
        Route("/openapi.json", openapi),
    ]
    answering = [
        *OpenAi(generations, flights, settings).routes,
        *Responses(generations, flights, settings).routes,
        *Streams(flights).routes,
        *Tokenizing(generations, settings).routes,
        *Prompts(mesh.bus, mesh.registry, generations, settings).routes,
    ]
    strict = settings.parameters == "strict"
    described = document([*answering, *operations], version("outrider"), strict=strict)
    edge = Edge(Guard(Paths([*answering, *operations]), entrance), settings.body_idle_s)
    return shared_with(settings.cors_origins, edge)
