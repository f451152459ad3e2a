"""What every call over gRPC has: an id, an admission, metrics and trailing metadata."""

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
from outrider.gateway.admission.access_control import AccessControl, Sender
from outrider.gateway.admission.reservation import Admission
from outrider.mesh.errors import Internal, InvalidRequest, OutriderError

_PEER = re.compile(r"ipv[46]:(?P<host>.*):\d+")
_REASON_KEY = "outrider-code"


class Call(NamedTuple):
    """One call: its id and its admission."""

    id: str
    admission: Admission


class Calls:
    """Admits calls."""

    def __init__(self, access: AccessControl) -> None:
        self._access = access

    @asynccontextmanager
    async def enter(self, context: Context, method: str, *, counts: bool = False) -> AsyncIterator[Call]:
        """One call of ``method``; errors of the block pass unchanged.

        Only a call that ``counts`` counts toward the limit on requests. The initial metadata hold the call's id, the
        trailing metadata the state of limits and the code of an error.
        """
        id_, headers = token_hex(16), dict[str, str]()
        with _counted(method), _with_trailers(context, headers):
            await context.send_initial_metadata((("x-request-id", id_),))
            async with self._access.admitted(_sender(context, id_), headers, counts=counts) as admission:
                yield Call(id_, admission)


@contextmanager
def _with_trailers(context: Context, headers: dict[str, str]) -> Iterator[None]:
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


def _sender(context: Context, id_: str) -> Sender:
    metadata = [(str(key), str(value)) for key, value in context.invocation_metadata() or ()]
    by_name = dict(metadata)
    for name in ("authorization", "x-api-key"):
        if sum(key == name for key, _ in metadata) > 1:
            raise InvalidRequest(f"the metadata {name} are given several times: give them once", param=name)
    peer = _PEER.fullmatch(unquote(context.peer()))
    return Sender(
        api="grpc",
        peer=peer["host"].strip("[]") if peer else "",
        authorization=by_name.get("authorization", ""),
        api_key=by_name.get("x-api-key", ""),
        forwarded=[value for key, value in metadata if key == "x-forwarded-for"],
        request=id_,
    )
