"""What both clients have in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import grpc

from outrider_client.calls import PATIENCE_S, Gateways
from outrider_client.grpc.methods import METHODS

OPTIONS = (
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.max_receive_message_length", 64 << 20),
    ("grpc.enable_http_proxy", 0),
)


class Base:
    """What both clients have in common.

    Args:
        addresses: ``host:port`` of one gateway or several of one mesh; where one fails, the next is asked.
        api_key: sent as a bearer token.
        timeout: seconds that an answer which is no stream may take.
        max_retries: further attempts after a connection that failed, and after errors that may pass.
        retry_after_s: the longest time that a gateway may ask to wait for, in seconds; beyond it the error is raised.
        resume_s: seconds without any success after which a stream that broke is given up.
        credentials: of TLS, where something before the gateways speaks it.
    """

    def __init__(
        self,
        addresses: str | Sequence[str] = "127.0.0.1:8081",
        *,
        api_key: str | None = None,
        timeout: float = 60.0,
        max_retries: int = 2,
        retry_after_s: float = PATIENCE_S,
        resume_s: float = 30.0,
        credentials: grpc.ChannelCredentials | None = None,
    ) -> None:
        self._gateways, self._timeout = Gateways(addresses), timeout
        self._retries, self._patience_s, self._resume_s = max_retries, retry_after_s, resume_s
        self._credentials = credentials
        self._metadata = (("authorization", f"Bearer {api_key}"),) if api_key else ()
        self._channels: dict[str, Any] = {}

    def _call(self, name: str, request: Any, timeout: float | None = None) -> Any:
        method, address = METHODS[name], self._gateways.address
        channel = self._channels.get(address)
        if channel is None:
            channel = self._channels[address] = self._open(address)
        make = channel.unary_stream if method.streams else channel.unary_unary
        call = make(
            method.path,
            request_serializer=method.request.SerializeToString,
            response_deserializer=method.response.FromString,
        )
        return call(request, timeout=timeout, metadata=self._metadata)

    def _open(self, address: str) -> Any:
        raise NotImplementedError
