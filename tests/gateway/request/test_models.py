"""The models that a mesh serves, with real registries."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from outrider.gateway.errors import UnknownModel
from outrider.gateway.request.models import Models
from outrider.mesh.bus import Bus
from outrider.mesh.errors import InvalidRequest, Unavailable
from outrider.mesh.registry import Registry, State, Times
from outrider.mesh.telemetry.metrics import REGISTRY

from tests.broker import Broker
from tests.waiting import eventually

Announce = Callable[..., Awaitable[Registry]]


@pytest.fixture
async def own_bus(broker: Broker) -> AsyncIterator[Bus]:
    bus = Bus()
    await bus.connect(broker.url, "test", wait_s=10)
    yield bus
    await bus.close()


@pytest.fixture
def times() -> Times:
    """The times of the reader's registry."""
    return Times()


@pytest.fixture
async def reader(own_bus: Bus, times: Times) -> AsyncIterator[Registry]:
    registry = Registry(own_bus, "gateway", "reader", times=times)
    await registry.start()
    yield registry
    registry.leave()


@pytest.fixture
async def announce(own_bus: Bus, reader: Registry) -> AsyncIterator[Announce]:
    """Announces a member, and returns when the reader knows it."""
    made: list[Registry] = []

    async def announced(kind: str, instance: str, state: State = State.READY, **status: object) -> Registry:
        told = {"model": "m", "vocabulary": "v", "context_length": 64} | status
        registry = Registry(own_bus, kind, instance, lambda: told)
        made.append(registry)
        await registry.start()
        registry.set_state(state)
        await eventually(lambda: any(member.instance == instance for member in reader.members(kind)))
        return registry

    yield announced
    for registry in made:
        registry.leave()


def unplaced(model: str) -> float | None:
    return REGISTRY.get_sample_value("outrider_gateway_unplaced_requests", {"model": model})


async def test_a_model_needs_a_tokenizer_and_a_verifier_of_one_vocabulary(reader: Registry, announce: Announce) -> None:
    models = Models(reader)
    await announce("verifier", "a")
    await announce("tokenizer", "b", vocabulary="other")
    assert models.all() == []
    with pytest.raises(Unavailable, match="model m"):
        models.find("m")
    await announce("tokenizer", "c")
    assert [(model.name, model.vocabulary) for model in models.all()] == [("m", "v")]
    assert [member.instance for member in models.tokenizers(models.find("m"))] == ["c"]


async def test_an_unknown_model_is_told_apart_from_one_that_is_away(reader: Registry, announce: Announce) -> None:
    models = Models(reader)
    for kind in ("tokenizer", "verifier"):
        await announce(kind, f"stays-{kind}", model="stays")
    leaving = [await announce(kind, f"leaves-{kind}", model="leaves") for kind in ("tokenizer", "verifier")]
    assert models.find("leaves").name == "leaves"
    for registry in leaving:
        registry.leave()
    await eventually(lambda: len(models.all()) == 1)
    with pytest.raises(Unavailable):
        models.find("leaves")
    with pytest.raises(UnknownModel, match=r"'nope' .*stays"):
        models.find("nope")


@pytest.mark.parametrize("others", [True, False])
@pytest.mark.parametrize("times", [Times(news_s=600)], ids=["just started"])
async def test_a_gateway_that_has_just_started_waits_for_members_that_it_has_not_heard_of(
    reader: Registry, announce: Announce, others: bool
) -> None:
    models = Models(reader)
    for kind in ("tokenizer", "verifier") if others else ():
        await announce(kind, f"other-{kind}", model="other")
    found = asyncio.create_task(models.wait_for("m", lambda _: True, 0))
    await announce("verifier", "a")
    assert not found.done()
    await announce("tokenizer", "b")
    assert (await found).name == "m"


@pytest.mark.parametrize("times", [Times(news_s=0)], ids=["knows all"])
async def test_a_gateway_that_knows_all_members_waits_for_no_other_model(reader: Registry, announce: Announce) -> None:
    models = Models(reader)
    for kind in ("tokenizer", "verifier"):
        await announce(kind, f"other-{kind}", model="other")
    with pytest.raises(UnknownModel):
        await models.wait_for("m", lambda _: True, 600)


@pytest.mark.parametrize("times", [Times(news_s=0)], ids=["knows all"])
@pytest.mark.parametrize("name", ["m", None])
async def test_a_request_for_a_cold_model_waits_for_a_verifier_and_counts_as_unplaced(
    reader: Registry, announce: Announce, name: str | None
) -> None:
    models = Models(reader, ["m"], cold_s=600)
    assert models.names() == ["m"]
    found = asyncio.create_task(models.wait_for(name, lambda _: True, 0))
    await eventually(lambda: unplaced("m") == 1)
    await announce("tokenizer", "a")
    assert not found.done()
    await announce("verifier", "b")
    assert (await found).name == "m"
    assert unplaced("m") == 0


@pytest.mark.parametrize("times", [Times(news_s=0)], ids=["knows all"])
async def test_a_cold_model_that_nobody_wakes_is_away_and_any_other_does_not_exist(reader: Registry) -> None:
    models = Models(reader, ["m"], cold_s=0)
    with pytest.raises(Unavailable, match="model m"):
        await models.wait_for("m", lambda _: True, 600)
    with pytest.raises(UnknownModel, match=r"'nope' .*m"):
        await models.wait_for("nope", lambda _: True, 600)
    with pytest.raises(UnknownModel, match="you may not use it"):
        await models.wait_for("m", lambda _: False, 600)


async def test_a_cold_model_is_one_of_several_though_nobody_serves_it(reader: Registry, announce: Announce) -> None:
    models = Models(reader, ["cold"])
    for kind in ("tokenizer", "verifier"):
        await announce(kind, f"one-{kind}")
    with pytest.raises(InvalidRequest, match="there are: cold, m"):
        models.find(None)


async def test_a_model_need_not_be_named_where_there_is_only_one(reader: Registry, announce: Announce) -> None:
    models = Models(reader)
    for kind in ("tokenizer", "verifier"):
        await announce(kind, f"one-{kind}")
    assert models.find(None).name == "m"
    for kind in ("tokenizer", "verifier"):
        await announce(kind, f"two-{kind}", model="n")
    with pytest.raises(InvalidRequest, match="there are: m, n"):
        models.find(None)


async def test_a_draining_verifier_is_not_asked(reader: Registry, announce: Announce) -> None:
    models = Models(reader)
    await announce("tokenizer", "t")
    await announce("verifier", "a")
    await announce("verifier", "b", state=State.DRAINING)
    assert [member.instance for member in models.verifiers(models.find("m"))] == ["a"]


async def test_while_a_vocabulary_is_exchanged_the_one_with_more_verifiers_serves(
    reader: Registry, announce: Announce
) -> None:
    models = Models(reader)
    for vocabulary, verifiers in (("old", 1), ("new", 2)):
        await announce("tokenizer", f"t-{vocabulary}", vocabulary=vocabulary)
        for number in range(verifiers):
            await announce("verifier", f"v-{vocabulary}-{number}", vocabulary=vocabulary)
    assert models.find("m").vocabulary == "new"


async def test_who_computes_prompts_for_others_is_asked_only_where_there_is_nobody_else(
    reader: Registry, announce: Announce
) -> None:
    models = Models(reader)
    await announce("tokenizer", "t")
    await announce("verifier", "p", role="prefill")
    served = models.find("m")
    assert [member.instance for member in models.verifiers(served)] == ["p"]
    for role in ("decode", "both"):
        await announce("verifier", role, role=role)
    assert [member.instance for member in models.verifiers(served)] == ["both", "decode"]


async def test_an_alias_is_a_further_name_of_a_model_and_never_hides_a_model(
    reader: Registry, announce: Announce
) -> None:
    models = Models(reader, aliases={"gpt": "m", "n": "m", "gone": "nowhere"})
    for kind in ("tokenizer", "verifier"):
        await announce(kind, f"{kind}-m")
    assert models.find("gpt").name == "m"
    assert (await models.wait_for("gpt", lambda name: name == "m", 1)).name == "m"
    assert (models.names(), models.aliases("m")) == (["m"], ["gpt", "n"])
    with pytest.raises(UnknownModel):
        models.find("gpt", lambda name: name != "m")
    with pytest.raises(UnknownModel):
        models.find("gone")
    for kind in ("tokenizer", "verifier"):
        await announce(kind, f"{kind}-n", model="n")
    models.all()
    assert models.find("n").name == "n"
