"""Finds the models that can answer a completion now."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType
from outrider.gateway.request.models import Models, ServedModel
from outrider.mesh.errors import OutriderError
from outrider.mesh.rpc import call, stub
from outrider.v1.tokenizer_pb2 import DescribeTokenizerRequest
from outrider.v1.tokenizer_pb2_grpc import TokenizerStub
from outrider.v1.verifier_pb2 import DescribeRequest
from outrider.v1.verifier_pb2_grpc import VerifierStub

_ASK_S = 1.0


class Health(msgspec.Struct):
    """The answer of ``/healthz``."""

    status: Literal["alive"] = "alive"


class Ready(msgspec.Struct):
    """The answer of ``/readyz``, and of ``/health`` and ``/ping``, its names on other servers.

    If streams cannot be recorded, the ``status`` is ``degraded``, and the ``message`` says why.
    """

    models: list[str]
    status: Literal["ready", "degraded"] = "ready"
    message: str | UnsetType = UNSET


class Version(msgspec.Struct):
    """The answer of ``/version``: the version of Outrider."""

    version: str


async def ready_models(models: Models) -> list[str]:
    """Names of the models with a tokenizer and a verifier that answer, and of cold models that nobody serves.

    A request for a cold model is what brings a verifier. The broker need not answer: frames can come from verifiers
    themselves.
    """
    served = models.all()
    answers = await asyncio.gather(*(_is_ready(models, model) for model in served))
    silent = {model.name for model, answer in zip(served, answers, strict=True) if not answer}
    return [name for name in models.names() if name not in silent]


async def _is_ready(models: Models, served: ServedModel) -> bool:
    tokenizers = [
        call(stub(TokenizerStub, member.address, "tokenizer").Describe, DescribeTokenizerRequest(), _ASK_S)
        for member in models.tokenizers(served)
    ]
    verifiers = [
        call(stub(VerifierStub, member.address, "verifier").Describe, DescribeRequest(), _ASK_S)
        for member in models.verifiers(served)
    ]
    return all(await asyncio.gather(_any_serves(tokenizers, served), _any_serves(verifiers, served)))


async def _any_serves(calls: Iterable[Awaitable[Any]], served: ServedModel) -> bool:
    for answer in asyncio.as_completed(map(_description, calls)):
        description = await answer
        if description is not None and description.vocabulary == served.vocabulary:
            return True
    return False


async def _description(answer: Awaitable[Any]) -> Any:
    try:
        return await answer
    except OutriderError:
        return None
