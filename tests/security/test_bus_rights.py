"""The rights of the broker's users, tried at a real nats-server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest
from nats.aio.msg import Msg
from outrider.cli.bus.rights import ANONYMOUS, USERS, client_rights
from outrider.cli.bus.seeds import public_key
from outrider.cli.bus.table import rights_table
from outrider.mesh.bus import inbox
from outrider.mesh.bus.rights import Rights, covers, minimal
from outrider.mesh.registry import announce_subject, ask_subject
from outrider.wire.frames import token_subject
from outrider.wire.subjects import CALLOUT, credential_digest, record_subject
from outrider_client import nats as over_nats

from tests.security.secured import TENANTS, Secured, joined
from tests.security.speaker import Speaker

CLIENTS = [f"client-{tenant}" for tenant in (*TENANTS, ANONYMOUS)]
NAMES = [*USERS, *CLIENTS]
SECURITY = Path(__file__).parents[2] / "docs" / "security.md"


def rights(secured: Secured, keys: Mapping[str, str], name: str) -> Rights:
    """What is declared for ``name``; the only tenant of a mesh without keys has a seed, the others have keys."""
    if name in USERS:
        return USERS[name]
    tenant = name.partition("-")[2]
    key = keys.get(tenant)
    return client_rights(tenant, credential_digest(key) if key else public_key(secured.users.client))


async def join(secured: Secured, keys: Mapping[str, str], name: str) -> Speaker:
    if key := keys.get(name.partition("-")[2]):
        return await Speaker.join(secured.broker.port, key=key)
    return await Speaker.join(secured.broker.port, secured.users.seed(name).read_bytes())


@pytest.fixture
async def speaker(secured: Secured, keys: Mapping[str, str], request: pytest.FixtureRequest) -> AsyncIterator[Speaker]:
    try:
        made = await join(secured, keys, request.param)
    except ConnectionRefusedError as error:
        if "Authentication Timeout" not in str(error):
            raise
        made = await join(secured, keys, request.param)  # the broker waits one second; services join again, too
    yield made
    await made.leave()


def example(pattern: str) -> str:
    """A subject that ``pattern`` covers, and that changes nothing which other tests need."""
    return pattern.replace("*", "tried").replace(">", "tried")


@pytest.fixture
def every_subject(secured: Secured, keys: Mapping[str, str]) -> list[str]:
    """An example of each subject that is declared for anybody, and subjects of nobody."""
    patterns = {subject for name in NAMES for kind in rights(secured, keys, name) for subject in kind}
    return sorted({example(pattern) for pattern in patterns} | {"anything"})


@pytest.mark.parametrize(("speaker", "name"), [(name, name) for name in NAMES], indirect=["speaker"])
async def test_a_user_publishes_what_is_declared_and_no_more(
    speaker: Speaker, name: str, secured: Secured, keys: Mapping[str, str], every_subject: list[str]
) -> None:
    declared = rights(secured, keys, name).publish
    for subject in every_subject:
        allowed = any(covers(pattern, subject) for pattern in declared)
        assert await speaker.may_publish(subject) == allowed, subject


@pytest.mark.parametrize(("speaker", "name"), [(name, name) for name in NAMES], indirect=["speaker"])
async def test_a_user_subscribes_to_what_is_declared_and_no_more(
    speaker: Speaker, name: str, secured: Secured, keys: Mapping[str, str], every_subject: list[str]
) -> None:
    declared = rights(secured, keys, name).subscribe
    for subject in [*every_subject, *declared, ">", "*", "tok.>", "_INBOX.>", "outrider.>"]:
        allowed = any(covers(pattern, subject) for pattern in declared)
        assert await speaker.may_subscribe(subject) == allowed, subject


FORBIDDEN = [
    ("proposer", "publish", token_subject("acme", "r")),
    ("proposer", "subscribe", token_subject("acme", "r")),
    ("proposer", "subscribe", record_subject("acme", "r", "0-1")),
    ("proposer", "publish", announce_subject("verifier")),
    ("tokenizer", "publish", token_subject("acme", "r")),
    ("tokenizer", "subscribe", token_subject("*", "*")),
    ("kvcache", "publish", announce_subject("gateway")),
    ("verifier", "publish", "$KV.outrider-tenants.key.1"),
    ("verifier", "publish", "$JS.API.STREAM.MSG.GET.KV_outrider-tenants"),
    ("verifier", "publish", "$JS.API.CONSUMER.CREATE.outrider-requests"),
    ("verifier", "publish", "outrider.streams.taken"),
    ("verifier", "subscribe", token_subject("*", "*")),
    ("verifier", "subscribe", "_INBOX.gateway.>"),
    ("gateway", "publish", announce_subject("verifier")),
    ("gateway", "publish", "_INBOX.verifier.x"),
    ("supervisor", "publish", announce_subject("gateway")),
    ("admin", "publish", announce_subject("verifier")),
    ("admin", "subscribe", token_subject("*", "*")),
    ("admin", "publish", "$KV.outrider-limits.x"),
    ("client-acme", "publish", announce_subject("verifier")),
    ("client-acme", "publish", ask_subject("client")),
    ("client-acme", "publish", token_subject("acme", "r")),
    ("client-acme", "subscribe", token_subject("other", "r")),
    ("client-acme", "subscribe", token_subject("*", "*")),
    ("client-acme", "subscribe", token_subject("acme", "r", unfiltered=True)),
    ("client-acme", "subscribe", token_subject("acme", "*", unfiltered=True)),
    ("client-acme", "subscribe", "_INBOX.client.>"),
    ("client-acme", "subscribe", announce_subject("*")),
    ("client-acme", "publish", "$SRV.PING"),
    ("client-acme", "publish", "$JS.API.STREAM.LIST"),
    *((name, "subscribe", ">") for name in NAMES),
    *((name, "publish", "$SYS._INBOX.a.b") for name in NAMES if name != "gateway"),
]


OF_NOBODY = [
    "$JS.API.INFO",
    "$JS.API.STREAM.NAMES",
    "$JS.API.STREAM.MSG.GET.outrider-requests",
    "$JS.API.STREAM.SNAPSHOT.KV_outrider-tenants",
    "$JS.API.STREAM.RESTORE.KV_outrider-tenants",
    "$JS.API.STREAM.PEER.REMOVE.outrider-tokens",
    "$JS.API.STREAM.LEADER.STEPDOWN.outrider-tokens",
    "$JS.API.CONSUMER.DELETE.outrider-requests.any",
    "$JS.API.CONSUMER.LIST.outrider-requests",
    "$JS.API.CONSUMER.DURABLE.CREATE.outrider-requests.any",
    "$JS.API.DIRECT.GET.KV_outrider-tenants",
    "$JS.API.DIRECT.GET.KV_outrider-tenants.$KV.outrider-tenants.key.1",
    "$JS.API.META.LEADER.STEPDOWN",
    "$JS.API.ACCOUNT.PURGE.OUTRIDER",
    "$JS.ACK.outrider-requests.any.1.1.1.1.0",
    "$SYS.REQ.SERVER.PING",
    "$SYS.REQ.ACCOUNT.PING.CONNZ",
    "$SYS.REQ.USER.AUTH",
    "$SYS.REQ.USER.INFO.any",
    "_INBOX.any",
    "outrider",
    "tok",
]
"""Subjects on which no user publishes, and of which only a gateway may hear the broker's questions."""


@pytest.mark.parametrize(("speaker", "name"), [(name, name) for name in NAMES], indirect=["speaker"])
async def test_what_nobody_needs_is_forbidden_to_everybody(speaker: Speaker, name: str) -> None:
    for subject in OF_NOBODY:
        assert not await speaker.may_publish(subject), subject
        assert await speaker.may_subscribe(subject) == (subject == CALLOUT and name == "gateway"), subject


@pytest.mark.parametrize(
    ("speaker", "operation", "subject"), FORBIDDEN, indirect=["speaker"], ids=lambda value: str(value).replace("/", "-")
)
async def test_what_nobody_of_a_kind_needs_is_forbidden(speaker: Speaker, operation: str, subject: str) -> None:
    assert not await (speaker.may_publish(subject) if operation == "publish" else speaker.may_subscribe(subject))


@pytest.mark.parametrize("tenant", TENANTS)
async def test_a_client_reads_the_frames_of_its_own_tenant(
    secured: Secured, keys: Mapping[str, str], tenant: str
) -> None:
    verifier = await joined(secured.broker, secured.users, "verifier")
    heard: asyncio.Queue[str] = asyncio.Queue()

    async def hear(message: Msg) -> None:
        heard.put_nowait(message.subject)

    async with over_nats.AsyncClient(secured.broker.url, api_key=keys[tenant]) as client:
        for each in TENANTS:
            await client.listen(token_subject(each, "r"), hear)
        while heard.qsize() < 2:  # the broker may read a frame before the subscriptions
            for each in TENANTS:
                verifier.publish(token_subject(each, "r"), b"")
            await asyncio.sleep(0.05)
        assert {heard.get_nowait() for _ in range(heard.qsize())} == {token_subject(tenant, "r")}
    await verifier.close()


def test_a_pattern_covers_what_the_broker_says_that_it_covers() -> None:
    assert covers("tok.*.*", "tok.a.b")
    assert covers("tok.*.*", "tok.*.b")
    assert covers("a.>", "a.b.c")
    assert covers("a.>", "a.>")
    assert not covers("a.>", "a")
    assert not covers("a.*", "a.>")
    assert not covers("a.b", "a.*")
    assert not covers("a.*", "a.b.c")
    assert not covers("a.b.c", "a.b")
    assert minimal(["b.c", "a.*", "a.b", "a.*"]) == ["a.*", "b.c"]


def test_the_table_in_the_documentation_is_that_of_the_code() -> None:
    assert rights_table() in SECURITY.read_text()


def test_every_user_has_an_inbox_of_its_own_or_none(secured: Secured, keys: Mapping[str, str]) -> None:
    inboxes = [each for name in NAMES for each in rights(secured, keys, name).subscribe if each.startswith(inbox(""))]
    assert len(inboxes) == len(set(inboxes)) == 6 + len(CLIENTS)
    assert not [(a, b) for a in inboxes for b in inboxes if a != b and covers(a, b)]


def test_the_list_of_users_holds_no_secret(secured: Secured) -> None:
    listed = secured.users.users.read_text()
    for seed in secured.users.path.glob("*.nk"):
        assert seed.read_text() not in listed
        assert seed.stat().st_mode & 0o777 == 0o600
    assert secured.users.path.stat().st_mode & 0o777 == 0o700
