"""Admits clients to the broker by their API keys, where the broker asks who may connect.

The broker's question and the answer are those of NATS's auth callout (ADR-26).
"""

from __future__ import annotations

import base64
import time
from math import inf
from typing import Any

import msgspec
from outrider.gateway.admission.access_control import AccessControl, Sender
from outrider.gateway.admission.caller import Caller
from outrider.mesh.bus import ACCOUNT, Bus, Issuer, Message, Subscription, inbox
from outrider.mesh.errors import OutriderError
from outrider.mesh.tasks import Tasks
from outrider.mesh.telemetry import get_logger
from outrider.wire.subjects import CALLOUT, CLIENT, client_subjects, client_user, credential_digest

LIFETIME_S = 300
"""Seconds after which the broker ends a client's connection; the client then has to show its key again."""
_XKEY_HEADER = "Nats-Server-Xkey"
_KINDS = ["STANDARD", "WEBSOCKET"]
"""Connections that a client may have: no leaf nodes and no MQTT."""
_UNLIMITED = -1

_log = get_logger("callout")


class ClientInfo(msgspec.Struct, frozen=True):
    """The address that connects."""

    host: str = ""


class ConnectOptions(msgspec.Struct, frozen=True):
    """The credentials that a client showed."""

    auth_token: str = ""
    password: str = msgspec.field(default="", name="pass")


class ServerId(msgspec.Struct, frozen=True):
    """The broker that asks."""

    id: str


class Question(msgspec.Struct, frozen=True):
    """May a client connect? ``user_nkey`` names the connection."""

    server_id: ServerId
    user_nkey: str
    client_info: ClientInfo
    connect_opts: ConnectOptions


class _Claims(msgspec.Struct, frozen=True):
    nats: Question


_decode_claims = msgspec.json.Decoder(_Claims).decode


class Callout:
    """Answers the broker's questions, shared with all gateways. A client gets the rights of its key's tenant."""

    def __init__(
        self, bus: Bus, tasks: Tasks, access: AccessControl, issuer: Issuer, lifetime_s: int = LIFETIME_S
    ) -> None:
        self._bus, self._tasks = bus, tasks
        self._access, self._issuer, self._lifetime_s = access, issuer, lifetime_s
        self._subscription: Subscription | None = None

    async def open(self) -> None:
        """Begins to answer."""
        self._subscription = await self._bus.subscribe(CALLOUT, self._hear, queue="outrider-gateways")

    async def close(self) -> None:
        """Leaves questions to other gateways."""
        if self._subscription is not None:
            await self._subscription.unsubscribe()

    def _hear(self, message: Message) -> None:
        self._tasks.spawn(self._answer(message), "callout")

    async def _answer(self, message: Message) -> None:
        try:
            broker = (message.headers or {})[_XKEY_HEADER]
            question = read_question(self._issuer.open(message.data, broker))
            answer = self._signed(question, await self._verdict(question))
            self._bus.publish(message.reply, self._issuer.seal(answer.encode(), broker))
        except Exception:  # whatever it is, the broker lets nobody in without an answer
            _log.exception("a question of the broker was not answered")

    async def _verdict(self, question: Question) -> dict[str, str]:
        """A user's JWT, or the reason why there is none, for the broker's log."""
        shown = question.connect_opts
        sender = Sender(api="nats", peer=question.client_info.host, api_key=shown.password or shown.auth_token)
        try:
            async with self._access.admitted(sender, {}, counts=False) as admission:
                return {"jwt": self._user(question.user_nkey, admission.caller, sender.key)}
        except OutriderError as error:
            return {"error": error.message}

    def _user(self, nkey: str, caller: Caller, key: str) -> str:
        """The JWT of a client; a broker with a configuration file reads no limits in it but its end."""
        subjects = client_subjects(caller.tenant, inbox(client_user(credential_digest(key))))
        rights = {"pub": {"allow": subjects.publish}, "sub": {"allow": subjects.subscribe}}
        limits = {"subs": _UNLIMITED, "data": _UNLIMITED, "payload": _UNLIMITED, "allowed_connection_types": _KINDS}
        ends = min(time.time() + self._lifetime_s, caller.credential.expires if caller.credential else inf)
        about = {"sub": nkey, "aud": ACCOUNT, "name": f"{CLIENT}-{caller.tenant}", "exp": int(ends)}
        return self._issuer.sign(about | {"nats": {"type": "user", "version": 2} | rights | limits})

    def _signed(self, question: Question, verdict: dict[str, str]) -> str:
        content: dict[str, Any] = {"type": "authorization_response", "version": 2} | verdict
        return self._issuer.sign({"sub": question.user_nkey, "aud": question.server_id.id, "nats": content})


def read_question(token: bytes) -> Question:
    """The question in a JWT of the broker, whose box has shown whose it is; `ValueError` for anything else."""
    _, content, _ = token.split(b".")
    return _decode_claims(base64.urlsafe_b64decode(content + b"=" * (-len(content) % 4))).nats
