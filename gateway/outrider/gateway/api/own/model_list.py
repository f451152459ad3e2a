"""``/v1/models``: in OpenAI's form, and in Anthropic's for clients that send ``anthropic-version``."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType
from outrider.gateway.api.http.messages import json_response
from outrider.gateway.errors import VERSION
from outrider.gateway.request.models import Models, ServedModel
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route


class ModelFacts(msgspec.Struct):
    """``outrider`` of a model: the ids of the tokens that end an answer."""

    end_token_ids: list[int]


class ModelBody(msgspec.Struct):
    """A model in the list; ``max_model_len``, which vLLM has too, is the number of tokens that its context holds.

    Neither the context nor ``outrider`` of a cold model is known before a verifier serves the model.
    """

    id: str
    created: int
    max_model_len: int | UnsetType = UNSET
    object: str = "model"
    owned_by: str = "outrider"
    outrider: ModelFacts | UnsetType = UNSET


class ModelList(msgspec.Struct):
    """All models."""

    data: list[ModelBody]
    object: str = "list"


class ModelInfo(msgspec.Struct, kw_only=True):
    """A model in Anthropic's form; ``max_input_tokens`` is the number of tokens that its context holds."""

    type: Literal["model"] = "model"
    id: str
    display_name: str
    created_at: str
    lifecycle: Literal["active"] = "active"
    max_input_tokens: int | None = None
    max_tokens: int | None = None


class ModelPage(msgspec.Struct):
    """All models in Anthropic's form."""

    data: list[ModelInfo]
    first_id: str | None
    last_id: str | None
    has_more: Literal[False] = False


class ModelRoutes:
    """The routes of ``/v1/models``."""

    def __init__(self, models: Models) -> None:
        self._all, self._created = models, int(time.time())
        self.routes = [
            Route("/v1/models", self._models, methods=["GET"]),
            Route("/v1/models/{model:path}", self._model, methods=["GET"]),
        ]

    async def _models(self, request: Request) -> Response:
        own = self._all.names(request.state.admission.caller.may_use)
        there = {model.name: model for model in self._all.all()}
        served = {each: there.get(name) for name in own for each in (name, *self._all.aliases(name))}
        names = list(served)
        if VERSION in request.headers:
            infos = [self._info(name, served.get(name)) for name in names]
            ends = (infos[0].id, infos[-1].id) if infos else (None, None)
            return json_response(ModelPage(infos, *ends))
        return json_response(ModelList([self._body(name, served.get(name)) for name in names]))

    async def _model(self, request: Request) -> Response:
        name = request.path_params["model"]
        served = self._all.find(name, request.state.admission.caller.may_use)
        made = self._info if VERSION in request.headers else self._body
        return json_response(made(name, served))

    def _body(self, name: str, served: ServedModel | None) -> ModelBody:
        if served is None:
            return ModelBody(name, self._created)
        facts = ModelFacts(self._all.end_token_ids(served))
        return ModelBody(name, self._created, served.context_length, outrider=facts)

    def _info(self, name: str, served: ServedModel | None) -> ModelInfo:
        context = None if served is None else served.context_length
        created = datetime.fromtimestamp(self._created, UTC).isoformat().replace("+00:00", "Z")
        return ModelInfo(id=name, display_name=name, created_at=created, max_input_tokens=context, max_tokens=context)
