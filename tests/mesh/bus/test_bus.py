"""The bus over a real nats-server."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from outrider.mesh.addresses import hold_port
from outrider.mesh.bus import Bus, Message
from outrider.mesh.bus.client import OUTBOX_BYTES
from outrider.mesh.bus.outbox import Outbox, Outgoing
from outrider.mesh.errors import InvalidRequest, Unavailable

from tests.broker import Broker
from tests.waiting import eventually


@pytest.fixture
async def own_bus(broker: Broker) -> AsyncIterator[Bus]:
    bus = Bus()
    await bus.connect(broker.url, "test", wait_s=10)
    yield bus
    await bus.close()


async def until(bus: Bus, connected: bool) -> None:
    await eventually(lambda: bus.connected == connected)


async def collect(bus: Bus, subject: str, queue: str = "") -> asyncio.Queue[bytes]:
    received: asyncio.Queue[bytes] = asyncio.Queue()
    await bus.subscribe(subject, lambda message: received.put_nowait(message.data), queue)
    return received


async def test_a_published_message_reaches_its_subscriber(bus: Bus) -> None:
    received = await collect(bus, "greeting.*")
    bus.publish("greeting.one", b"hello")
    assert await received.get() == b"hello"


async def test_messages_arrive_in_the_order_in_which_they_were_published(bus: Bus) -> None:
    received = await collect(bus, "order")
    for number in range(2000):
        bus.publish("order", str(number).encode())
    assert [int(await received.get()) for _ in range(2000)] == list(range(2000))


async def test_more_than_the_broker_takes_at_once_arrives_in_order_too(bus: Bus) -> None:
    received = await collect(bus, "much")
    for number in range(500):
        bus.publish("much", b"%d %b" % (number, bytes(10_000 if number < 400 else 0)))
        if number > 400:
            await asyncio.sleep(0)
    assert [int((await received.get()).split()[0]) for _ in range(500)] == list(range(500))


async def test_the_oldest_of_far_too_much_gives_way(bus: Bus) -> None:
    received = await collect(bus, "flood")
    for number in range(300):
        bus.publish("flood", b"%d %b" % (number, bytes(100_000)))
    numbers = [int((await received.get()).split()[0])]
    while numbers[-1] != 299:
        numbers.append(int((await received.get()).split()[0]))
    assert numbers == sorted(numbers)
    assert OUTBOX_BYTES - 100_000 < len(numbers) * 100_000 < OUTBOX_BYTES + (2 << 20)


async def test_members_of_a_queue_share_the_messages(bus: Bus) -> None:
    one, other = await collect(bus, "shared", "workers"), await collect(bus, "shared", "workers")
    for _ in range(100):
        bus.publish("shared", b"")
    await eventually(lambda: one.qsize() + other.qsize() == 100)
    assert one.qsize() > 0
    assert other.qsize() > 0


async def test_a_subscriber_that_raises_costs_only_its_message(bus: Bus) -> None:
    received: asyncio.Queue[bytes] = asyncio.Queue()

    async def fussy(message: Message) -> None:
        if message.data == b"bad":
            raise ValueError("bad")
        received.put_nowait(message.data)

    await bus.subscribe("fussy", fussy)
    bus.publish("fussy", b"bad")
    bus.publish("fussy", b"good")
    assert await received.get() == b"good"


async def test_nothing_arrives_after_unsubscribing(bus: Bus) -> None:
    received: list[bytes] = []
    subscription = await bus.subscribe("gone", lambda message: received.append(message.data))
    after = await collect(bus, "gone")
    await subscription.unsubscribe()
    await subscription.unsubscribe()
    bus.publish("gone", b"late")
    assert await after.get() == b"late"
    assert received == []


async def test_a_subscription_that_ended_is_freed_at_once(bus: Bus) -> None:
    gc.disable()
    try:
        subscription = await bus.subscribe("short", lambda message: None)
        alive = weakref.ref(subscription)
        await subscription.unsubscribe()
        del subscription
        await eventually(lambda: alive() is None)
    finally:
        gc.enable()


async def test_each_subscriber_gets_whole_messages_in_order_among_those_of_others(bus: Bus) -> None:
    received: list[bytes] = []
    other = await collect(bus, "beside")
    await bus.subscribe("sizes.*", lambda message: received.append(message.data))
    sent = [bytes([number % 256]) * (number * 37 % 5000) for number in range(600)]
    for place, data in enumerate(sent):
        bus.publish(f"sizes.{place}", data)
        if place % 7 == 0:
            bus.publish("beside", b"")
    await eventually(lambda: len(received) == len(sent) and other.qsize() == 86)
    assert received == sent


async def test_who_has_subscribed_misses_nothing_of_what_others_say(bus: Bus, shared_nats: str) -> None:
    other = Bus()
    await other.connect(shared_nats, "other", wait_s=10)
    for number in range(50):
        received = await collect(bus, f"at.once.{number}")
        other.publish(f"at.once.{number}", b"now")
        assert await received.get() == b"now"
    await other.close()


async def test_a_subscriber_that_does_not_wait_for_the_broker_is_not_subscribed(bus: Bus) -> None:
    received: list[bytes] = []
    subscribing = asyncio.create_task(bus.subscribe("impatient", lambda message: received.append(message.data)))
    await asyncio.sleep(0)
    subscribing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await subscribing
    after = await collect(bus, "impatient")
    bus.publish("impatient", b"late")
    assert await after.get() == b"late"
    assert received == []


async def test_a_message_over_the_brokers_limit_is_refused_in_words(bus: Bus) -> None:
    too_much = bytes(bus.max_payload + 1)
    with pytest.raises(InvalidRequest, match="1048577 bytes on big"):
        bus.publish("big", too_much)


@pytest.mark.parametrize("subject", ["", "two words", "line\r\nbreak"])
async def test_a_subject_that_is_none_is_refused(bus: Bus, subject: str) -> None:
    with pytest.raises(ValueError, match="subject"):
        bus.publish(subject, b"")
    with pytest.raises(ValueError, match="subject"):
        await bus.subscribe(subject, lambda message: None)


async def test_connecting_to_nobody_gives_up_after_the_stated_time() -> None:
    url = f"nats://127.0.0.1:{hold_port()}"
    bus = Bus()
    with pytest.raises(Unavailable, match=r"[Cc]onnect"):
        await bus.connect(url, "test", wait_s=0.6)
    await bus.close()


async def test_connecting_to_nobody_ends_even_where_an_attempt_fails_at_the_stated_time() -> None:
    url = f"nats://127.0.0.1:{hold_port()}"
    buses = [Bus() for _ in range(300)]
    joining = [asyncio.create_task(bus.connect(url, "test", 0.2 + at / 3000)) for at, bus in enumerate(buses)]
    await asyncio.wait(joining, timeout=10)
    ended = [task.done() and isinstance(task.exception(), Unavailable) for task in joining]
    assert all(ended), f"{ended.count(False)} of {len(ended)} still try"
    for bus in buses:
        await bus.close()


async def test_connecting_waits_for_a_broker_that_comes_later(broker: Broker) -> None:
    broker.kill()
    tried = asyncio.Event()

    def refuse(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()
        tried.set()

    bus = Bus()
    async with await asyncio.start_server(refuse, "127.0.0.1", broker.port):
        joining = asyncio.create_task(bus.connect(broker.url, "test", wait_s=20))
        await tried.wait()
    assert not joining.done()
    await asyncio.to_thread(broker.start)
    await joining
    assert bus.connected
    await bus.close()


async def test_what_is_published_during_an_outage_arrives_after_it(own_bus: Bus, broker: Broker) -> None:
    changes: list[bool] = []
    own_bus.on_change(changes.append)
    received = await collect(own_bus, "kept")
    broker.kill()
    await until(own_bus, connected=False)
    for number in range(3):
        own_bus.publish("kept", str(number).encode())
    await asyncio.to_thread(broker.start)
    assert [await received.get() for _ in range(3)] == [b"0", b"1", b"2"]
    assert changes == [False, True]


async def test_a_subscription_made_during_an_outage_works_after_it(own_bus: Bus, broker: Broker) -> None:
    broker.kill()
    await until(own_bus, connected=False)
    received = await collect(own_bus, "later")
    await asyncio.to_thread(broker.start)
    await until(own_bus, connected=True)
    own_bus.publish("later", b"here")
    assert await received.get() == b"here"


async def test_a_broker_that_turned_us_away_for_good_is_joined_again(tmp_path: Path) -> None:
    """nats-py closes for ever when the broker revokes its rights; the bus reconnects when they are restored."""
    config = tmp_path / "nats.conf"
    config.write_text("")
    broker = Broker()
    broker.start("--config", str(config))
    bus = Bus()
    try:
        await bus.connect(broker.url, "test", wait_s=10)
        received = await collect(bus, "rights")
        config.write_text("authorization { token: secret }")
        broker.reload()
        await until(bus, connected=False)
        bus.publish("rights", b"kept")
        config.write_text("")
        broker.reload()
        assert await received.get() == b"kept"
    finally:
        await bus.close()
        broker.kill()


async def test_closing_sends_what_was_published_before(bus: Bus, shared_nats: str) -> None:
    received = await collect(bus, "last")
    leaver = Bus()
    await leaver.connect(shared_nats, "leaver", wait_s=10)
    for _ in range(50):
        leaver.publish("last", b"word")
    await leaver.close()
    assert [await received.get() for _ in range(50)] == [b"word"] * 50
    assert not leaver.connected


async def test_closing_during_an_outage_does_not_wait_for_the_broker(own_bus: Bus, broker: Broker) -> None:
    broker.kill()
    await until(own_bus, connected=False)
    own_bus.publish("lost", b"")
    async with asyncio.timeout(5):
        await own_bus.close()


def test_a_full_outbox_drops_its_oldest_messages() -> None:
    outbox = Outbox(limit=10)
    for letter in "abcd":
        outbox.put(Outgoing(letter, bytes(4), None))
    assert [outbox.take().subject for _ in range(len(outbox))] == ["c", "d"]


async def test_a_password_in_the_url_is_in_no_message_of_the_bus(unused_tcp_port: int) -> None:
    bus = Bus()
    with pytest.raises(Unavailable) as caught:
        await bus.connect(
            f"nats://me:secret@127.0.0.1:{unused_tcp_port},nats://me:other@127.0.0.1:1", "test", wait_s=0.2
        )
    assert str(caught.value).count("********") == 2
    assert not {"secret", "other"} & set(str(caught.value).replace("@", ":").split(":"))
    await bus.close()
