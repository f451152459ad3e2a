"""The gateway's HTTP routes."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import version

from outrider.gateway.cors import shared_with
from outrider.gateway.edge import Edge
from outrider.gateway.flights import Flights
from outrider.gateway.generations import Generations
from outrider.gateway.http import json_response
from outrider.gateway.openai.routes import OpenAi
from outrider.gateway.openai.streams import Streams
from outrider.gateway.openapi.document import document
from outrider.gateway.paths import Paths
from outrider.gateway.playground.page import Playground
from outrider.gateway.prompts import Prompts
from outrider.gateway.readiness import Health, Ready, Version, ready
from outrider.gateway.responses.routes import Responses
from outrider.gateway.settings import GatewaySettings
from outrider.gateway.tokenizing import Tokenizing
from outrider.mesh.errors import Unavailable
from outrider.mesh.service import Mesh
from outrider.mesh.telemetry import render
from outrider.mesh.telemetry.metrics import CONTENT_TYPE
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp


def make_app(mesh: Mesh, flights: Flights, settings: GatewaySettings, guarded: Callable[[ASGIApp], ASGIApp]) -> ASGIApp:
    """All front doors over HTTP, which ``guarded`` lets callers in by, and what operators ask."""
    generations = Generations(flights, settings)

    async def healthz(request: Request) -> Response:
        return json_response(Health())

    async def readyz(request: Request) -> Response:
        models = await ready(generations.models)
        if not models:
            raise Unavailable("no model has both a tokenizer and a verifier that answer", retry_after=1.0)
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
    described = document([*answering, *operations], version("outrider"))
    edge = Edge(guarded(Paths([*answering, *operations])), settings.body_idle_s)
    return shared_with(settings.cors_origins, edge)
