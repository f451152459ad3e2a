"""Interceptors of calls that add the headers of the present trace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc
from outrider.mesh.telemetry import current_headers


def interceptors() -> list[grpc.aio.ClientInterceptor]:
    """Interceptors for every kind of call."""
    return [_UnaryUnary(), _UnaryStream(), _StreamUnary(), _StreamStream()]


async def _add_trace_headers(
    continuation: Callable[..., Any], details: grpc.aio.ClientCallDetails, request: Any
) -> Any:
    metadata = grpc.aio.Metadata(*(details.metadata or ()))
    for key, value in (current_headers() or {}).items():
        metadata.add(key, value)
    return await continuation(details._replace(metadata=metadata), request)


class _UnaryUnary(grpc.aio.UnaryUnaryClientInterceptor):  # type: ignore[misc] # grpc is untyped
    async def intercept_unary_unary(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        return await _add_trace_headers(continuation, client_call_details, request)


class _UnaryStream(grpc.aio.UnaryStreamClientInterceptor):  # type: ignore[misc] # grpc is untyped
    async def intercept_unary_stream(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        return await _add_trace_headers(continuation, client_call_details, request)


class _StreamUnary(grpc.aio.StreamUnaryClientInterceptor):  # type: ignore[misc] # grpc is untyped
    async def intercept_stream_unary(self, continuation: Any, client_call_details: Any, request_iterator: Any) -> Any:
        return await _add_trace_headers(continuation, client_call_details, request_iterator)


class _StreamStream(grpc.aio.StreamStreamClientInterceptor):  # type: ignore[misc] # grpc is untyped
    async def intercept_stream_stream(self, continuation: Any, client_call_details: Any, request_iterator: Any) -> Any:
        return await _add_trace_headers(continuation, client_call_details, request_iterator)
