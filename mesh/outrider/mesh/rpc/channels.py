"""The channels of one event loop, in the clear or over TLS, and their replacement when certificates are renewed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import grpc
from outrider.mesh.rpc import options
from outrider.mesh.rpc.shared_stream import SharedChannel
from outrider.mesh.security import Certificates, Identity, Material
from outrider.mesh.security.grpc_tls import channel_credentials
from outrider.mesh.security.refusals import refusal
from outrider.mesh.telemetry import get_logger

_SOCKET = "unix:"
LAST_CALLS_S = 30.0
"""Seconds for which a replaced channel still takes calls, from callers that had it before."""
_LONGEST_CALL_S = 10 * 365 * 86400.0
_FIRST_LOOK_S, _LONGEST_LOOK_S = 0.5, 60.0
"""Seconds between two looks for the reason why a connection fails, doubled with each look."""
_log = get_logger("rpc")


class Channels:
    """Channels by address and expected kind, and the stubs on them."""

    def __init__(self) -> None:
        self.stubs: dict[tuple[Callable[[grpc.aio.Channel], Any], str, str, bool], Any] = {}
        self._channels: dict[tuple[str, str], grpc.aio.Channel] = {}
        self._shared: dict[tuple[str, str], SharedChannel] = {}
        self._certificates: Certificates | None = None
        self._last_calls_s = LAST_CALLS_S
        self._watches: dict[grpc.aio.Channel, asyncio.Task[None]] = {}
        self._retirements: set[asyncio.Task[None]] = set()

    def get(self, address: str, kind: str) -> grpc.aio.Channel:
        """The channel to a server of ``kind`` at ``address``."""
        found = self._channels.get((address, kind))
        if found is None:
            found = self._channels[address, kind] = self._open(address, kind)
        return found

    def shared(self, address: str, kind: str) -> SharedChannel:
        """What `get` returns, for unary calls that share a stream."""
        found = self._shared.get((address, kind))
        if found is None:
            found = self._shared[address, kind] = SharedChannel(self.get(address, kind))
        return found

    def secure(self, certificates: Certificates, last_calls_s: float) -> None:
        """Opens TLS channels from now on, with the present certificate."""
        self._certificates, self._last_calls_s = certificates, last_calls_s
        certificates.on_change(self._replace)

    async def close(self) -> None:
        """Closes all channels; calls in flight are cancelled."""
        for task in (*self._retirements, *self._watches.values()):
            task.cancel()
        for each in {*self._channels.values(), *self._watches}:
            await each.close()
        self._channels = {}

    def _open(self, address: str, kind: str) -> grpc.aio.Channel:
        if self._certificates is None or address.startswith(_SOCKET):
            return grpc.aio.insecure_channel(address, options=options.CHANNEL)
        name = Identity(self._certificates.identity.trust_domain, kind).server_name
        named = (("grpc.ssl_target_name_override", name),) if kind else ()
        credentials = channel_credentials(self._certificates.material)
        opened = grpc.aio.secure_channel(address, credentials, options=(*options.CHANNEL, *named))
        self._watches[opened] = asyncio.create_task(_tell_refusals(opened, address, kind, self._certificates))
        return opened

    def _replace(self, material: Material) -> None:
        """New calls open new channels; calls in flight end on the old ones."""
        old, self._channels = self._channels, {}
        self.stubs.clear()
        for (address, kind), each in old.items():
            if address.startswith(_SOCKET):
                self._channels[address, kind] = each
            else:
                if (shared := self._shared.pop((address, kind), None)) is not None:
                    shared.retire()
                task = asyncio.create_task(self._retire(each))
                self._retirements.add(task)
                task.add_done_callback(self._retirements.discard)

    async def _retire(self, channel: grpc.aio.Channel) -> None:
        await asyncio.sleep(self._last_calls_s)
        self._watches[channel].cancel()
        await channel.close(_LONGEST_CALL_S)
        del self._watches[channel]


async def _tell_refusals(channel: grpc.aio.Channel, address: str, kind: str, certificates: Certificates) -> None:
    """Logs why a connection fails, each reason once until the connection succeeds.

    A channel that fails tries again without a change of its state, and the reason may become another one.
    """
    state, told, pause_s = channel.get_state(), "", _FIRST_LOOK_S
    while state is not grpc.ChannelConnectivity.SHUTDOWN:
        if state is grpc.ChannelConnectivity.TRANSIENT_FAILURE:
            why = await refusal(address, kind, certificates)
            if why is not None and why != told:
                _log.error("a service cannot be reached over TLS", address=address, kind=kind, why=why)
            told, pause_s = why or told, min(2 * pause_s, _LONGEST_LOOK_S)
            await asyncio.sleep(pause_s)
        else:
            if state is grpc.ChannelConnectivity.READY:
                told, pause_s = "", _FIRST_LOOK_S
            await channel.wait_for_state_change(state)
        state = channel.get_state()
