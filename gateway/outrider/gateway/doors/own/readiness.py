"""Whether a completion would succeed now."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType
from outrider.gateway.requests.models import Models, Served
from outrider.mesh.errors import OutriderError
from outrider.mesh.rpc import call, stub
from outrider.v1.tokenizer_pb2 import DescribeTokenizerRequest
from outrider.v1.tokenizer_pb2_grpc import TokenizerStub
from outrider.v1.verifier_pb2 import DescribeRequest
from outrider.v1.verifier_pb2_grpc import VerifierStub

_ASK_S = 1.0


class Health(msgspec.Struct):
    """What ``/healthz`` says."""

    status: Literal["alive"] = "alive"


class Ready(msgspec.Struct):
    """What ``/readyz`` says, and ``/health`` and ``/ping``, which others call it.

    Where streams cannot be recorded, it is ``degraded`` and the ``message`` says why.
    """

    models: list[str]
    status: Literal["ready", "degraded"] = "ready"
    message: str | UnsetType = UNSET


class Version(msgspec.Struct):
    """What ``/version`` says: that of Outrider."""

    version: str


async def ready(models: Models) -> list[str]:
    """Names of the models of which a tokenizer and a verifier answer. The broker need not: frames have other ways."""
    served = models.all()
    answers = await asyncio.gather(*(_answers(models, model) for model in served))
    return [model.name for model, answer in zip(served, answers, strict=True) if answer]


async def _answers(models: Models, served: Served) -> bool:
    tokenizers = [
        call(stub(TokenizerStub, member.address).Describe, DescribeTokenizerRequest(), _ASK_S)
        for member in models.tokenizers(served)
    ]
    verifiers = [
        call(stub(VerifierStub, member.address).Describe, DescribeRequest(), _ASK_S)
        for member in models.verifiers(served)
    ]
    return all(await asyncio.gather(_any(tokenizers, served), _any(verifiers, served)))


async def _any(calls: Iterable[Awaitable[Any]], served: Served) -> bool:
    for answer in asyncio.as_completed(map(_described, calls)):
        described = await answer
        if described is not None and described.vocabulary == served.vocabulary:
            return True
    return False


async def _described(answer: Awaitable[Any]) -> Any:
    try:
        return await answer
    except OutriderError:
        return None
