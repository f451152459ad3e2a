"""The rights of the broker's users, tried at a real nats-server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from outrider.cli.bus.directory import BusDirectory
from outrider.cli.bus.rights import USERS, client_rights, client_user
from outrider.cli.bus.seeds import public_key
from outrider.cli.bus.table import rights_table
from outrider.mesh.bus import Bus, Login, find_login, inbox
from outrider.mesh.bus.rights import Rights, covers, minimal
from outrider.mesh.registry import announce_subject, ask_subject
from outrider.wire.frames import token_subject
from outrider.wire.subjects import record_subject

from tests.broker import Broker
from tests.cli.bus.speaker import Speaker
from tests.users import guarded_broker

TENANTS = ("acme", "other")
CLIENTS = [f"client-{tenant}" for tenant in TENANTS]
NAMES = [*USERS, *CLIENTS]
SECURITY = Path(__file__).parents[3] / "docs" / "security.md"


@pytest.fixture(scope="module")
def users(tmp_path_factory: pytest.TempPathFactory) -> BusDirectory:
    made = BusDirectory(tmp_path_factory.mktemp("users") / "bus")
    made.write()
    for tenant in TENANTS:
        made.issue(tenant)
    return made


@pytest.fixture(scope="module")
def guarded(users: BusDirectory, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    broker = guarded_broker(users, "--jetstream", "--store_dir", str(tmp_path_factory.mktemp("store")))
    broker.start()
    yield broker
    broker.kill()


def rights(users: BusDirectory, name: str) -> Rights:
    if name in USERS:
        return USERS[name]
    return client_rights(name.partition("-")[2], public_key(users.seed(name)))


@pytest.fixture
async def speaker(guarded: Broker, users: BusDirectory, request: pytest.FixtureRequest) -> AsyncIterator[Speaker]:
    made = await Speaker.join(guarded.port, users.seed(request.param).read_bytes())
    yield made
    await made.leave()


def example(pattern: str) -> str:
    """A subject that ``pattern`` covers, and that changes nothing which other tests need."""
    return pattern.replace("*", "tried").replace(">", "tried")


def every_subject(users: BusDirectory) -> list[str]:
    patterns = {subject for name in NAMES for kind in rights(users, name) for subject in kind}
    return sorted({example(pattern) for pattern in patterns} | {"$SYS.REQ.SERVER.PING", "anything"})


@pytest.mark.parametrize(("speaker", "name"), [(name, name) for name in NAMES], indirect=["speaker"])
async def test_a_user_publishes_what_is_declared_and_no_more(speaker: Speaker, name: str, users: BusDirectory) -> None:
    declared = rights(users, name).publish
    for subject in every_subject(users):
        allowed = any(covers(pattern, subject) for pattern in declared)
        assert await speaker.may_publish(subject) == allowed, subject


@pytest.mark.parametrize(("speaker", "name"), [(name, name) for name in NAMES], indirect=["speaker"])
async def test_a_user_subscribes_to_what_is_declared_and_no_more(
    speaker: Speaker, name: str, users: BusDirectory
) -> None:
    declared = rights(users, name).subscribe
    for subject in [*every_subject(users), *declared, ">", "*", "tok.>", "_INBOX.>", "outrider.>"]:
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
    *((name, "publish", "$SYS.REQ.SERVER.PING") for name in NAMES),
]


@pytest.mark.parametrize(
    ("speaker", "operation", "subject"), FORBIDDEN, indirect=["speaker"], ids=lambda value: str(value).replace("/", "-")
)
async def test_what_nobody_of_a_kind_needs_is_forbidden(speaker: Speaker, operation: str, subject: str) -> None:
    assert not await (speaker.may_publish(subject) if operation == "publish" else speaker.may_subscribe(subject))


async def test_nobody_joins_without_a_seed_that_the_broker_knows(guarded: Broker, tmp_path: Path) -> None:
    foreign = BusDirectory(tmp_path / "bus")
    foreign.write()
    for seed in (None, foreign.seed("gateway").read_bytes()):
        with pytest.raises(ConnectionRefusedError, match="Authorization Violation"):
            await Speaker.join(guarded.port, seed)


@pytest.mark.parametrize("tenant", TENANTS)
async def test_a_client_reads_the_frames_of_its_own_tenant(guarded: Broker, users: BusDirectory, tenant: str) -> None:
    reader, verifier = Bus(), Bus()
    client = users.client(tenant)
    await reader.connect(guarded.url, "reader", 10, Login(client_user(public_key(client)), client))
    await verifier.connect(guarded.url, "verifier", 10, find_login(str(users.path), "verifier"))
    heard: asyncio.Queue[str] = asyncio.Queue()
    for each in TENANTS:
        await reader.subscribe(token_subject(each, "r"), lambda message: heard.put_nowait(message.subject))
    for each in (*TENANTS, tenant):
        verifier.publish(token_subject(each, "r"), b"")
    assert {await heard.get(), await heard.get()} == {token_subject(tenant, "r")}
    for bus in (reader, verifier):
        await bus.close()


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


def test_every_user_has_an_inbox_of_its_own_or_none(users: BusDirectory) -> None:
    inboxes = [subject for name in NAMES for subject in rights(users, name).subscribe if subject.startswith(inbox(""))]
    assert len(inboxes) == len(set(inboxes)) == 6 + len(CLIENTS)
    assert not [(a, b) for a in inboxes for b in inboxes if a != b and covers(a, b)]


async def test_the_list_of_users_holds_no_secret(users: BusDirectory) -> None:
    listed = users.users.read_text()
    for seed in users.path.glob("*.nk"):
        assert seed.read_text() not in listed
        assert seed.stat().st_mode & 0o777 == 0o600
    assert users.path.stat().st_mode & 0o777 == 0o700
