"""``/v1/embeddings``, ``/v1/rerank`` and ``/v1/score``."""

from __future__ import annotations

import base64
import time
from typing import TypeVar

from outrider.gateway.api.embeddings.bodies import (
    Document,
    Embedding,
    EmbeddingBody,
    Embeddings,
    RankedDocument,
    Ranks,
    RerankBody,
    Score,
    ScoreBody,
    Scores,
    TextsBody,
)
from outrider.gateway.api.embeddings.embedder import Embedded, Embedder, Vector, cosine, shortened
from outrider.gateway.api.http.messages import json_response, read_body, until_disconnected
from outrider.gateway.api.schema.ignored import announce, collector
from outrider.gateway.api.schema.parameters import read
from outrider.gateway.settings import GatewaySettings
from outrider.wire.ids import pack_floats
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

B = TypeVar("B", bound=TextsBody)


class EmbeddingRoutes:
    """The routes of embeddings, ranks and scores; the paths of the latter two are vLLM's."""

    def __init__(self, embedder: Embedder, settings: GatewaySettings) -> None:
        self._embedder, self._settings = embedder, settings
        paths = {
            self._embeddings: ("/v1/embeddings",),
            self._rerank: ("/v1/rerank", "/v2/rerank", "/rerank"),
            self._score: ("/v1/score", "/score"),
        }
        self.routes = [Route(path, answer, methods=["POST"]) for answer, own in paths.items() for path in own]

    async def _embeddings(self, request: Request) -> Response:
        body, made = await self._embed(request, EmbeddingBody)
        vectors = [shortened(vector, body.dimensions) for vector in made.vectors]
        data = [Embedding(place, _encoded(vector, body.encoding_format)) for place, vector in enumerate(vectors)]
        return json_response(Embeddings(data, made.model, made.usage))

    async def _rerank(self, request: Request) -> Response:
        body, made = await self._embed(request, RerankBody)
        query, *documents = made.vectors
        ranked = [RankedDocument(place, cosine(query, vector)) for place, vector in enumerate(documents)]
        ranked.sort(key=lambda each: (-each.relevance_score, each.index))
        ranked = ranked[: body.top_n or None]
        if body.return_documents:
            for each in ranked:
                each.document = Document(body.texts[each.index])
        return json_response(Ranks(f"rerank-{request.state.request_id}", made.model, ranked, made.usage))

    async def _score(self, request: Request) -> Response:
        body, made = await self._embed(request, ScoreBody)
        first = body.lengths[0]
        ones, twos = made.vectors[:first], made.vectors[first:]
        pairs = zip(ones if first == len(twos) else ones * len(twos), twos, strict=True)
        data = [Score(place, cosine(one, two)) for place, (one, two) in enumerate(pairs)]
        name = f"score-{request.state.request_id}"
        return json_response(Scores(name, int(time.time()), made.model, data, made.usage))

    async def _embed(self, request: Request, kind: type[B]) -> tuple[B, Embedded]:
        ignored = collector(self._settings)
        body = read(await read_body(request, self._settings.max_body_bytes), kind, ignored=ignored)
        announce(request, ignored)
        return body, await until_disconnected(request.receive, self._embedder.embed(request, body))


def _encoded(vector: Vector, form: str) -> list[float] | str:
    return base64.b64encode(pack_floats(vector)).decode() if form == "base64" else vector
