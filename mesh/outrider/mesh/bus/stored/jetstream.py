"""Calls of JetStream: streams with the replicas that are set, and NATS's errors in our words."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import nats.errors
import nats.js.errors as js_errors
from nats.js import api
from outrider.mesh.errors import Unavailable
from outrider.mesh.telemetry import get_logger

if TYPE_CHECKING:
    from outrider.mesh.bus.client import Bus

_NO_JETSTREAM = "NATS has no JetStream, or has lost what it stored: start nats-server with --jetstream, then this again"
_NO_LEADER = "JetStream has no leader for this at the moment: too few servers of its cluster answer, or they elect one"
_FULL = "JetStream has no room left, by the limits that nats-server was started with"
_NO_ROOM = 10023
_ELECTING = (10004, 10008, 10009)
"""JetStream's codes for a cluster that is incomplete, that does not answer at the moment, or that has no leader."""

_TOO_FEW_SERVERS = (10005, 10074)
"""JetStream's codes for a stream with more replicas than there are servers, and for replicas outside a cluster."""

_log = get_logger("jetstream")


class Refused(Unavailable):
    """The server that leads a stream answered that it cannot do this."""


async def add_stream(bus: Bus, config: api.StreamConfig, timeout_s: float) -> None:
    """Creates the stream with the replicas of ``bus``; raises errors of nats-py, and `Unavailable` for too few servers.

    An equal stream may exist.
    """
    try:
        await bus.jetstream(timeout_s).add_stream(config.evolve(num_replicas=bus.replicas))
    except js_errors.APIError as error:
        if error.err_code in _TOO_FEW_SERVERS:
            raise Unavailable(_too_few_servers(bus, error), retry_after=1.0) from None
        raise


async def raise_replicas(bus: Bus, name: str, timeout_s: float) -> None:
    """Raises the replicas of the stream ``name`` to those of ``bus``; a stream with as many or more stays as it is.

    The stream serves meanwhile. Where there are too few servers, the stream stays as it is, and the log says so.
    Raises errors of nats-py.
    """
    js = bus.jetstream(timeout_s)
    config = (await js.stream_info(name)).config
    before = config.num_replicas or 1
    if before >= bus.replicas:
        return
    try:
        await js.update_stream(config.evolve(num_replicas=bus.replicas))
    except js_errors.APIError as error:
        _log.warning("a stream keeps fewer replicas", stream=name, replicas=before, why=_too_few_servers(bus, error))
        return
    _log.info("a stream has more replicas", stream=name, before=before, replicas=bus.replicas)


@asynccontextmanager
async def mapping_errors(bus: Bus) -> AsyncIterator[None]:
    """Raises errors of NATS as `Unavailable`, those that the server answered with as `Refused`."""
    if not bus.connected:
        raise Unavailable("NATS is not connected", retry_after=1.0)
    try:
        yield
    except js_errors.NoStreamResponseError:
        raise Unavailable(_NO_LEADER if bus.clustered else _NO_JETSTREAM, retry_after=1.0) from None
    except js_errors.ServiceUnavailableError as error:
        raise _unavailable(bus, error) from None
    except js_errors.APIError as error:
        raise Refused(f"JetStream did not answer: {error}", retry_after=1.0) from None
    except nats.errors.Error as error:
        raise Unavailable(f"JetStream did not answer: {error}", retry_after=1.0) from None


def _unavailable(bus: Bus, error: js_errors.ServiceUnavailableError) -> Unavailable:
    if error.err_code == _NO_ROOM:
        return Refused(_FULL, retry_after=1.0)
    if bus.clustered and error.err_code in _ELECTING:
        return Unavailable(_NO_LEADER, retry_after=1.0)
    return Refused(_NO_JETSTREAM, retry_after=1.0)


def _too_few_servers(bus: Bus, error: js_errors.APIError) -> str:
    return (
        f"nats_replicas = {bus.replicas} needs as many servers of NATS with JetStream, in one cluster and running: "
        f"{error.description}"
    )
