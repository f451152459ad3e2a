"""The guard around every handler: it maps errors to a status, and opens a span in the caller's trace."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, aclosing, nullcontext
from typing import Any

import grpc
from grpc.aio import ServicerContext as Context
from outrider.mesh.errors import Internal, OutriderError, Unavailable, from_rpc, trailing_metadata
from outrider.mesh.telemetry import TRACEPARENT, continued_span, get_logger, tracing

_log = get_logger("rpc")
_BEGINNINGS = "/outrider.v1.Inference/"
"""Methods with which a trace may begin. Other calls are part of a caller's trace, or of none: gateways have decided."""
_TRACE_HEADERS = (TRACEPARENT, "tracestate")


Admit = Callable[[str, Context], None]
"""Raises `PermissionDenied` unless the caller may call the method."""


def guarded_handler(
    method: str, handler: grpc.RpcMethodHandler[Any, Any], admit: Admit | None = None
) -> grpc.RpcMethodHandler[Any, Any]:
    """``handler`` with its callers admitted, its errors mapped and its span opened.

    ``method`` is `/package.Service/Method`; without ``admit``, everyone may call it.
    """
    behaviour = _behaviour(handler)
    if handler.response_streaming and inspect.isasyncgenfunction(behaviour):
        wrapped: Callable[..., Any] = _guard_stream(method, behaviour, admit)
    else:
        wrapped = _guard_unary(method, behaviour, admit)
    return _factory(handler)(
        wrapped,
        request_deserializer=handler.request_deserializer,
        response_serializer=handler.response_serializer,
    )


def starting_handler(method: str, admit: Admit | None = None) -> grpc.RpcMethodHandler[Any, Any]:
    """Answer to any method of a service that has not started: UNAVAILABLE."""

    async def refuse(request: Any, context: Context) -> bytes:
        raise Unavailable("the service is starting", retry_after=1.0)

    return guarded_handler(method, grpc.stream_unary_rpc_method_handler(refuse), admit)


def _guard_unary(method: str, behaviour: Callable[..., Any], admit: Admit | None) -> Callable[..., Any]:
    async def call(request: Any, context: Context) -> Any:
        try:
            if admit is not None:
                admit(method, context)
            with _span(method, context):
                return await behaviour(request, context)
        except Exception as error:
            await _fail(method, context, error)

    return call


def _guard_stream(method: str, behaviour: Callable[..., Any], admit: Admit | None) -> Callable[..., Any]:
    async def stream(request: Any, context: Context) -> AsyncIterator[Any]:
        try:
            if admit is not None:
                admit(method, context)
            with _span(method, context):
                async with aclosing(behaviour(request, context)) as responses:
                    async for response in responses:
                        yield response
        except Exception as error:
            await _fail(method, context, error)

    return stream


def _span(method: str, context: Context) -> AbstractContextManager[object]:
    """The span of a call, as a part of the caller's trace; nothing while tracing is off."""
    if not tracing():
        return nullcontext()
    headers = _headers(context)
    if TRACEPARENT not in headers and not method.startswith(_BEGINNINGS):
        return nullcontext()
    return continued_span(headers, method, attributes={"rpc.system.name": "grpc", "rpc.method": method[1:]})


async def _fail(method: str, context: Context, error: Exception) -> None:
    """Ends the call with the status of ``error``."""
    if isinstance(error, grpc.aio.AbortError):
        raise error
    if isinstance(error, NotImplementedError):
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, f"{method} is not implemented")
    failure = failure_of(method, error)
    metadata = context.trailing_metadata() or ()
    await context.abort(failure.code, failure.message, (*metadata, *trailing_metadata(failure)))


def failure_of(method: str, error: Exception) -> OutriderError:
    """The error to report to the caller; an unexpected one is logged and reported as internal."""
    if isinstance(error, OutriderError):
        return error
    if isinstance(error, grpc.aio.AioRpcError):
        return from_rpc(error)
    _log.error("a handler failed", method=method, exc_info=error)
    return Internal()


def _headers(context: Context) -> dict[str, str]:
    """The headers of ``context`` that name the caller's span."""
    return {key: str(value) for key, value in (context.invocation_metadata() or ()) if key in _TRACE_HEADERS}


def _behaviour(handler: grpc.RpcMethodHandler[Any, Any]) -> Callable[..., Any]:
    for kind in ("unary_unary", "unary_stream", "stream_unary", "stream_stream"):
        if (behaviour := getattr(handler, kind)) is not None:
            return behaviour  # type: ignore[no-any-return]
    raise TypeError("a handler without behaviour")


def _factory(handler: grpc.RpcMethodHandler[Any, Any]) -> Callable[..., grpc.RpcMethodHandler[Any, Any]]:
    request = "stream" if handler.request_streaming else "unary"
    response = "stream" if handler.response_streaming else "unary"
    return getattr(grpc, f"{request}_{response}_rpc_method_handler")  # type: ignore[no-any-return]
