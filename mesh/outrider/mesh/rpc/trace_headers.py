"""Calls that name the current span to the called service."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc
from outrider.mesh.telemetry import current_headers


class TracedChannel:
    """What a stub needs of ``channel``; its calls carry the headers of the current span, where the trace is kept.

    Interceptors of gRPC would do the same, and make every call much dearer, also where there is nothing to carry.
    """

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._channel = channel

    def unary_unary(self, *args: Any, **options: Any) -> Callable[..., Any]:
        """As gRPC's."""
        return _traced(self._channel.unary_unary(*args, **options))

    def unary_stream(self, *args: Any, **options: Any) -> Callable[..., Any]:
        """As gRPC's."""
        return _traced(self._channel.unary_stream(*args, **options))

    def stream_unary(self, *args: Any, **options: Any) -> Callable[..., Any]:
        """As gRPC's."""
        return _traced(self._channel.stream_unary(*args, **options))

    def stream_stream(self, *args: Any, **options: Any) -> Callable[..., Any]:
        """As gRPC's."""
        return _traced(self._channel.stream_stream(*args, **options))


def _traced(method: Callable[..., Any]) -> Callable[..., Any]:
    def call(*request: Any, metadata: Any = None, **options: Any) -> Any:
        if (headers := current_headers()) is not None:
            metadata = (*(metadata or ()), *headers.items())
        return method(*request, metadata=metadata, **options)

    return call
