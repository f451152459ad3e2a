"""``/v1/prompts``: a tenant's named prompts, which verifiers keep computed."""

from __future__ import annotations

import time
from typing import Annotated, Any

import msgspec
from msgspec import Meta
from outrider.gateway.admission.caller import Caller
from outrider.gateway.admission.reservation import Admission
from outrider.gateway.api.http.messages import json_response, read_body
from outrider.gateway.api.schema.ignored import announce, collector
from outrider.gateway.api.schema.parameters import read
from outrider.gateway.api.schema.prompts import chat
from outrider.gateway.errors import TooLarge
from outrider.gateway.request.generation import Messages, Prompt, Text
from outrider.gateway.request.intake import Generations
from outrider.gateway.settings import GatewaySettings
from outrider.mesh.bus import Bucket, Bus
from outrider.mesh.errors import InvalidRequest, NotFound, Unavailable
from outrider.mesh.registry import Member, Registry
from outrider.wire.bounds import Flag
from outrider.wire.prompts import (
    BUCKET,
    MOST_BYTES,
    MOST_PROMPTS,
    NAME,
    NamedPrompt,
    prompt_entry,
    prompt_mark,
)
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route


class PromptBody(msgspec.Struct, frozen=True, kw_only=True):
    """Body of ``PUT /v1/prompts/{name}``: the beginning of prompts, or of chats."""

    model: Annotated[str, Meta(min_length=1, description="the name of a model")] | None = None
    prompt: Annotated[str, Meta(min_length=1, description="a string")] | None = None
    messages: (
        Annotated[
            list[dict[str, Any]], Meta(min_length=1, description="an array of messages with a role and a content")
        ]
        | None
    ) = None
    parse_special_tokens: Flag | None = None


class StoredPrompt(msgspec.Struct):
    """A named prompt. ``verifiers`` counts the verifiers of its model, ``warm`` those that keep it computed."""

    name: str
    created: int
    model: str | None
    bytes: int
    warm: int
    verifiers: int
    prompt: str | None = None
    messages: list[dict[str, Any]] | None = None
    object: str = "prompt"


class PromptList(msgspec.Struct):
    """All of a tenant's prompts, without their texts."""

    data: list[StoredPrompt]
    object: str = "list"


class PromptRoutes:
    """The routes of ``/v1/prompts``, which read and write the store of prompts.

    The registry says which verifiers keep a prompt computed.
    """

    def __init__(self, bus: Bus, registry: Registry, generations: Generations, settings: GatewaySettings) -> None:
        self._bucket, self._registry = Bucket(bus, BUCKET), registry
        self._generations, self._settings = generations, settings
        self.routes = [
            Route("/v1/prompts", self._list, methods=["GET"]),
            Route("/v1/prompts/{name}", self._put, methods=["PUT"]),
            Route("/v1/prompts/{name}", self._get, methods=["GET"]),
            Route("/v1/prompts/{name}", self._delete, methods=["DELETE"]),
        ]

    async def _list(self, request: Request) -> Response:
        tenant = _tenant(request)
        entries = [await self._read(tenant, name) for name in await self._names(tenant)]
        return json_response(PromptList([self._stored(*entry, whole=False) for entry in entries if entry is not None]))

    async def _put(self, request: Request) -> Response:
        """Stores a prompt; verifiers compute it within seconds, and drop the earlier prompt of this name."""
        ignored = collector(self._settings)
        body = read(await read_body(request, self._settings.max_body_bytes), PromptBody, ignored=ignored)
        announce(request, ignored)
        tenant, name = _tenant(request), _name(request)
        prompt = await self._named_prompt(body, tenant, name, request.state.admission)
        data = msgspec.json.encode(prompt)
        if len(data) > MOST_BYTES:
            raise TooLarge(f"the prompt takes {len(data)} bytes; at most {MOST_BYTES} are kept")
        revision = await self._charged(prompt, data, request.state.admission)
        return json_response(self._stored(prompt, revision))

    async def _charged(self, prompt: NamedPrompt, data: bytes, admission: Admission) -> int:
        """The revision of the stored ``data``; each model that computes the prompt is charged for once."""
        tokens = await self._tokens(prompt, admission.caller) if admission.metered else 0
        await admission.reserve_prompt(tokens)
        try:
            revision = await self._store(prompt, data)
        except BaseException:
            admission.settle(0)
            raise
        admission.settle(tokens)
        return revision

    async def _tokens(self, prompt: NamedPrompt, caller: Caller) -> int:
        """The tokens of the prompt, summed over all models that it is for; `Unavailable` while there is none."""
        named = prompt.model is not None
        served = [await self._generations.find(prompt.model, caller)] if named else self._generations.models.all()
        if not (allowed := [model for model in served if caller.may_use(model.name)]):
            raise Unavailable("no model is there to count the prompt's tokens", retry_after=1.0)
        text: Prompt = Text(prompt.text or "", parse_special=prompt.parse_special)
        if prompt.messages is not None:
            text = Messages(msgspec.json.encode(prompt.messages).decode(), answering=False)
        return sum([len(await self._generations.encode(model, text, caller)) for model in allowed])

    async def _store(self, prompt: NamedPrompt, data: bytes) -> int:
        await self._bucket.open()
        entry, others = prompt_entry(prompt.tenant, prompt.name), prompt_entry(prompt.tenant, "")
        revision = await self._bucket.put_below_limit(entry, data, others, MOST_PROMPTS)
        if revision is None:
            raise InvalidRequest(f"there are {MOST_PROMPTS} prompts already, the most that are kept: delete one")
        return revision

    async def _named_prompt(self, body: PromptBody, tenant: str, name: str, admission: Admission) -> NamedPrompt:
        if (body.prompt is None) == (body.messages is None):
            raise InvalidRequest("either prompt or messages is required: a string, or an array of messages")
        named = body.model is not None
        model = (await self._generations.find(body.model, admission.caller)).name if named else None
        messages = msgspec.json.decode(chat(body.messages).json) if body.messages is not None else None
        parse = admission.caller.parse_special if body.parse_special_tokens is None else body.parse_special_tokens
        residency = admission.caller.residency
        return NamedPrompt(
            name=name,
            tenant=tenant,
            created=time.time(),
            model=model,
            text=body.prompt,
            messages=messages,
            parse_special=parse,
            residency=None if residency is None else tuple(sorted(residency)),
            priority=admission.caller.priority,
            weight=admission.caller.weight,
        )

    async def _get(self, request: Request) -> Response:
        entry = await self._read(_tenant(request), _name(request))
        if entry is None:
            raise _missing(request)
        return json_response(self._stored(*entry))

    async def _delete(self, request: Request) -> Response:
        tenant, name = _tenant(request), _name(request)
        if name not in await self._names(tenant):
            raise _missing(request)
        await self._bucket.wipe(prompt_entry(tenant, name))
        return Response(status_code=204)

    async def _names(self, tenant: str) -> list[str]:
        await self._bucket.open()
        prefix = prompt_entry(tenant, "")
        return [key.removeprefix(prefix) for key in await self._bucket.keys() if key.startswith(prefix)]

    async def _read(self, tenant: str, name: str) -> tuple[NamedPrompt, int] | None:
        await self._bucket.open()
        entry = await self._bucket.get(prompt_entry(tenant, name))
        return None if entry is None else (msgspec.json.decode(entry.value, type=NamedPrompt), entry.revision)

    def _stored(self, prompt: NamedPrompt, revision: int, *, whole: bool = True) -> StoredPrompt:
        members = [member for member in self._registry.members("verifier") if _serves(member, prompt.model)]
        mark = prompt_mark(prompt.tenant, prompt.name, revision)
        stored = StoredPrompt(
            name=prompt.name,
            created=int(prompt.created),
            model=prompt.model,
            bytes=len(msgspec.json.encode(prompt)),
            warm=sum(mark in member.status.get("pinned", ()) for member in members),
            verifiers=len(members),
        )
        if whole:
            stored.prompt, stored.messages = prompt.text, prompt.messages
        return stored


def _serves(member: Member, model: str | None) -> bool:
    return model in (None, member.status.get("model"))


def _tenant(request: Request) -> str:
    admission: Admission = request.state.admission
    return admission.caller.tenant


def _name(request: Request) -> str:
    name = str(request.path_params["name"])
    if not NAME.fullmatch(name):
        raise InvalidRequest("the name of a prompt is 1 to 64 letters, digits, '-' and '_'", param="name")
    return name


def _missing(request: Request) -> NotFound:
    return NotFound(f"there is no prompt {request.path_params['name']!r}", param="name")
