"""What stands around every handler: errors become a status, the caller's trace goes on."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager, nullcontext
from typing import Any

import grpc
from grpc.aio import ServicerContext as Context
from outrider.mesh.errors import Internal, OutriderError, Unavailable, from_rpc, trailing_metadata
from outrider.mesh.telemetry import continued, get_logger, tracing

_log = get_logger("rpc")


def guarded(method: str, handler: grpc.RpcMethodHandler[Any, Any]) -> grpc.RpcMethodHandler[Any, Any]:
    """``handler`` with its errors mapped and its span opened; ``method`` is `/package.Service/Method`."""
    behaviour = _behaviour(handler)
    if not handler.response_streaming:
        wrapped: Callable[..., Any] = _guard_unary(method, behaviour)
    elif inspect.isasyncgenfunction(behaviour):
        wrapped = _guard_stream(method, behaviour)
    else:
        wrapped = _guard_unary(method, behaviour)
    return _make(handler)(
        wrapped,
        request_deserializer=handler.request_deserializer,
        response_serializer=handler.response_serializer,
    )


def starting(method: str) -> grpc.RpcMethodHandler[Any, Any]:
    """Answer to any method of a service that has not started: UNAVAILABLE."""

    async def refuse(request: Any, context: Context) -> bytes:
        raise Unavailable("the service is starting", retry_after=1.0)

    return guarded(method, grpc.stream_unary_rpc_method_handler(refuse))


def _guard_unary(method: str, behaviour: Callable[..., Any]) -> Callable[..., Any]:
    async def call(request: Any, context: Context) -> Any:
        async with _edge(method, context):
            return await behaviour(request, context)

    return call


def _guard_stream(method: str, behaviour: Callable[..., Any]) -> Callable[..., Any]:
    async def stream(request: Any, context: Context) -> AsyncIterator[Any]:
        async with _edge(method, context), aclosing(behaviour(request, context)) as responses:
            async for response in responses:
                yield response

    return stream


@asynccontextmanager
async def _edge(method: str, context: Context) -> AsyncIterator[None]:
    """Ends the call with the status of the error that left the block."""
    try:
        with continued(_headers(context), method) if tracing() else nullcontext():
            yield
    except OutriderError as error:
        await _fail(context, error)
    except grpc.aio.AioRpcError as error:
        await _fail(context, from_rpc(error))
    except NotImplementedError:
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, f"{method} is not implemented")
    except grpc.aio.AbortError:
        raise
    except Exception:
        _log.exception("a handler failed", method=method)
        await _fail(context, Internal())


async def _fail(context: Context, error: OutriderError) -> None:
    told = context.trailing_metadata() or ()
    await context.abort(error.code, error.message, (*told, *trailing_metadata(error)))


def _headers(context: Context) -> dict[str, str]:
    return {str(key): str(value) for key, value in (context.invocation_metadata() or ())}


def _behaviour(handler: grpc.RpcMethodHandler[Any, Any]) -> Callable[..., Any]:
    for kind in ("unary_unary", "unary_stream", "stream_unary", "stream_stream"):
        if (found := getattr(handler, kind)) is not None:
            return found  # type: ignore[no-any-return]
    raise TypeError("a handler without behaviour")


def _make(handler: grpc.RpcMethodHandler[Any, Any]) -> Callable[..., grpc.RpcMethodHandler[Any, Any]]:
    request = "stream" if handler.request_streaming else "unary"
    response = "stream" if handler.response_streaming else "unary"
    return getattr(grpc, f"{request}_{response}_rpc_method_handler")  # type: ignore[no-any-return]
