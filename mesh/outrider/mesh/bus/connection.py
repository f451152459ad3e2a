"""A connection to NATS that proves who this process is, and who the broker is, anew whenever it is made."""

from __future__ import annotations

import ssl
import time
from typing import Any

import nats.errors
from nats.aio.client import DEFAULT_BUFFER_SIZE, Client, Srv
from outrider.mesh.bus.login import Credentials
from outrider.mesh.bus.transport import Transport
from outrider.mesh.errors import ConfigError
from outrider.mesh.security import BROKER, Trust
from outrider.mesh.security.refusals import why_untrusted

_TLS = "tls"
_UNKNOWN_USER = "authorization violation"


class Refusal(nats.errors.Error):
    """This process and a broker do not agree on TLS, or the credentials are none: one sentence."""


class Connection(Client):
    """nats-py's client, which would read the credentials and the authorities only once.

    Where the URL is ``tls://``, only the broker's greeting is in the clear, and nothing is sent before the handshake:
    nats-py alone would go on in the clear if the greeting does not ask for TLS.
    """

    def __init__(self, credentials: Credentials | None = None, trust: Trust | None = None) -> None:
        super().__init__()
        self._credentials, self._trust = credentials, trust or Trust()

    @property
    def ssl_context(self) -> ssl.SSLContext:
        """The context for the next handshake."""
        if not self._wants_tls:
            raise Refusal("the broker asks for TLS: write tls:// in nats_url")
        try:
            return self._trust.context()
        except ConfigError as error:
            raise Refusal(str(error)) from None

    @property
    def _wants_tls(self) -> bool:
        return self._current_server is not None and self._current_server.uri.scheme == _TLS

    @property
    def clustered(self) -> bool:
        """Whether the server at the other end belongs to a cluster."""
        return "cluster" in self._server_info

    def abandon(self) -> None:
        """Closes the socket of an attempt to connect that was given up."""
        if self._transport:
            self._transport.close()  # type: ignore[no-untyped-call] # nats-py's

    async def _connect_to_server(self, s: Srv) -> None:
        """Opens a new socket for each attempt."""
        s.last_attempt = time.monotonic()
        self.abandon()
        self._transport = Transport()  # type: ignore[no-untyped-call]
        await self._transport.connect(s.uri, DEFAULT_BUFFER_SIZE, self.options["connect_timeout"])

    def _connect_command(self) -> bytes:
        """What the client says behind the broker's greeting, and behind the handshake of TLS if there was one."""
        if self._wants_tls and not self._server_info.get("tls_required"):
            raise Refusal("the broker does not speak TLS, and nats_url asks for it")
        if self._credentials is not None:
            self._prove(self._credentials.read())
        self._take_password()
        return super()._connect_command()

    def _take_password(self) -> None:
        """Gives a server that is in no URL, and that the cluster named, the user and password of one in a URL."""
        urls = [server.uri for server in (self._current_server, *self._server_pool) if server is not None]
        known = next((url for url in urls if url.username), urls[0])
        token = known.username if known.password is None else None
        self.options |= {"user": known.username, "password": known.password, "token": token}

    def _prove(self, options: dict[str, Any]) -> None:
        """Has nats-py answer the broker's challenge with the credentials in ``options``, if there are any."""
        self._user_credentials = options.get("user_credentials")
        self._nkeys_seed_str = options.get("nkeys_seed_str")
        if self._user_credentials or self._nkeys_seed_str:
            self._auth_configured = True
            self._setup_nkeys_connect()


def why_refused(error: Exception, url: str) -> str:
    """Why the broker at ``url`` and this process do not accept each other, in one sentence; empty for another error."""
    if isinstance(error, Refusal):
        return f"NATS at {url} was not joined: {error.args[0]}"
    if isinstance(error, ssl.SSLCertVerificationError):
        return why_untrusted(error, f"the {BROKER} at {url}", BROKER)
    if isinstance(error, ssl.SSLError):
        return f"TLS with the broker at {url} failed: {error.reason}"
    if _UNKNOWN_USER in str(error).lower():
        return f"NATS at {url} does not know this user: set nats_credentials to a seed that it knows"
    return ""
