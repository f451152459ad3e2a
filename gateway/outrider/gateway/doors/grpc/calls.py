"""What stands around every call over gRPC: its id, whose it is, its metrics, and what is told beside its error."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from secrets import token_hex
from typing import NamedTuple
from urllib.parse import unquote

import grpc
from grpc.aio import ServicerContext as Context
from outrider.gateway import metrics
from outrider.gateway.admission.entrance import Entrance, Visitor
from outrider.gateway.admission.reservation import Admission
from outrider.mesh.errors import Internal, InvalidRequest, OutriderError

_PEER = re.compile(r"ipv[46]:(?P<host>.*):\d+")
_REASON_KEY = "outrider-code"


class Call(NamedTuple):
    """One call: its id, and what its caller is admitted to."""

    id: str
    admission: Admission


class Calls:
    """Lets calls in."""

    def __init__(self, entrance: Entrance) -> None:
        self._entrance = entrance

    @asynccontextmanager
    async def enter(self, context: Context, method: str, *, counts: bool = False) -> AsyncIterator[Call]:
        """One call of ``method``, which ``counts`` as a request; its errors leave the block as they are.

        The id is told at once, in the initial metadata; what is known of limits, and an error's code, at the end.
        """
        id_, headers = token_hex(16), dict[str, str]()
        with _counted(method), _told(context, headers):
            await context.send_initial_metadata((("x-request-id", id_),))
            admission = await self._entrance.admit(_visitor(context), headers, counts=counts)
            yield Call(id_, admission)


@contextmanager
def _told(context: Context, headers: dict[str, str]) -> Iterator[None]:
    try:
        yield
    except OutriderError as error:
        if (reason := getattr(error, "reason", None)) is not None:
            headers[_REASON_KEY] = reason
        raise
    finally:
        context.set_trailing_metadata(tuple(headers.items()))


@contextmanager
def _counted(method: str) -> Iterator[None]:
    code = grpc.StatusCode.CANCELLED
    try:
        yield
        code = grpc.StatusCode.OK
    except OutriderError as error:
        code = error.code
        raise
    except Exception:
        code = Internal.code
        raise
    finally:
        metrics.calls.labels(method, code.name).inc()


def _visitor(context: Context) -> Visitor:
    said = [(str(key), str(value)) for key, value in context.invocation_metadata() or ()]
    named = dict(said)
    for name in ("authorization", "x-api-key"):
        if sum(key == name for key, _ in said) > 1:
            raise InvalidRequest(f"the metadata {name} are given several times: give them once", param=name)
    peer = _PEER.fullmatch(unquote(context.peer()))
    return Visitor(
        peer=peer["host"].strip("[]") if peer else "",
        authorization=named.get("authorization", ""),
        api_key=named.get("x-api-key", ""),
        forwarded=[value for key, value in said if key == "x-forwarded-for"],
    )
