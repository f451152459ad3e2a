"""The users of the broker, and what each may publish and subscribe to. All else is forbidden.

The subjects are those of the modules that use them. A kind of service is one user, however many processes it has. A
client's user belongs to one tenant; gateways admit it by its API key.
"""

from __future__ import annotations

from collections.abc import Mapping

from outrider.mesh import erasures
from outrider.mesh.bus import inbox
from outrider.mesh.bus.rights import Rights, journals, publishing, reading, subscribing, wiping, writing
from outrider.mesh.clock import BROKER_INFO
from outrider.mesh.registry import announce_subject, ask_subject, batch_subject, keeper_subject
from outrider.wire import drafters, prompts, served, tenants
from outrider.wire.frames import frames_subject, token_subject
from outrider.wire.page_news import news_subject
from outrider.wire.subjects import (
    BILLS_BUCKET,
    CALLOUT,
    CLIENT,
    GRAMMARS_CONDEMNED,
    LIMITS_BUCKET,
    REQUESTS,
    STREAMS_ENDED,
    STREAMS_TAKEN,
    client_subjects,
    client_user,
    record_subject,
)

ADMIN, SUPERVISOR = "admin", "supervisor"
ANONYMOUS = "default"
"""The tenant of all requests to a gateway that asks for no keys."""
_CALLOUT_REPLIES = "$SYS._INBOX.*.*"
_DISCOVERY = "$SRV.>"
"""Subjects of NATS's services protocol (ADR-32)."""


def _member(kind: str) -> Rights:
    """What a process needs to announce itself, as its own kind only, and to know all others."""
    subjects = announce_subject, ask_subject, batch_subject, keeper_subject
    return publishing(*(subject(kind) for subject in subjects)) | subscribing(*(subject("*") for subject in subjects))


def _service(kind: str) -> Rights:
    """What every service needs: to be a member, to receive replies, the time, and erasures of tenants to confirm."""
    erasing = reading(erasures.BUCKET) | publishing(erasures.erased_subject(kind))
    return _member(kind) | _receiving(kind) | publishing(BROKER_INFO) | erasing


def _receiving(user: str) -> Rights:
    """The right to receive replies."""
    return subscribing(f"{inbox(user)}.>")


_GATEWAY = (
    journals(record_subject("*", "*", "*"), token_subject("*", "*"))
    | writing(tenants.BUCKET)
    | writing(LIMITS_BUCKET)
    | writing(BILLS_BUCKET)
    | writing(prompts.BUCKET)
    | publishing(STREAMS_TAKEN, STREAMS_ENDED, GRAMMARS_CONDEMNED, f"{inbox(CLIENT)}.>", f"{inbox(ADMIN)}.>")
    | subscribing(STREAMS_TAKEN, STREAMS_ENDED, GRAMMARS_CONDEMNED, news_subject("*"))
    | subscribing(frames_subject("*"))
    | subscribing(token_subject("*", "*"))  # gateways of earlier versions
    | subscribing(*REQUESTS, _DISCOVERY)
    | subscribing(CALLOUT)
    | publishing(_CALLOUT_REPLIES)
)
_VERIFIER = (
    publishing(token_subject("*", "*"), frames_subject("*"), news_subject("*"), served.ALL_SUBJECTS)
    | subscribing(served.ALL_SUBJECTS)
    | reading(prompts.BUCKET)
    | reading(drafters.BUCKET)
)
_ADMIN = (
    writing(tenants.BUCKET)
    | writing(prompts.BUCKET)
    | writing(drafters.BUCKET)
    | writing(erasures.BUCKET)
    | wiping(LIMITS_BUCKET)
    | publishing(_DISCOVERY)
    | subscribing(erasures.erased_subject("*"))
)

USERS: Mapping[str, Rights] = {
    "gateway": _service("gateway") | _GATEWAY,
    "verifier": _service("verifier") | _VERIFIER,
    "proposer": _service("proposer"),
    "tokenizer": _service("tokenizer"),
    "kvcache": _service("kvcache"),
    SUPERVISOR: _member(SUPERVISOR),
    ADMIN: _member(ADMIN) | _receiving(ADMIN) | _ADMIN,
}
"""Users of every mesh: its kinds of services, `outrider up` (supervisor), and the commands that manage it (admin)."""


def client_rights(tenant: str, name: str) -> Rights:
    """What the client ``name`` of ``tenant`` may do."""
    subjects = client_subjects(tenant, inbox(client_user(name)))
    return publishing(*subjects.publish) | subscribing(*subjects.subscribe)
