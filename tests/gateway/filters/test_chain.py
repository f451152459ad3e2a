"""Filters in a row, and what happens when one fails."""

from __future__ import annotations

import asyncio
import json

import pytest
from outrider.gateway.admission.caller import Caller, OwnedLimits
from outrider.gateway.filters.chain import Chain, Setup
from outrider.gateway.filters.filter import Passed
from outrider.gateway.filters.installed import InstalledFilters
from outrider.gateway.filters.patterns import patterns
from outrider.gateway.settings import GatewaySettings
from outrider.mesh.errors import ConfigError, Unavailable
from outrider.wire.tenants import Limits

from tests.gateway.filters.reading import chain, passed_by


class Words:
    """Passes whole words; ends the answer behind ``last``, fails at ``broken`` and never decides ``slow``."""

    def __init__(self) -> None:
        self.held = ""

    async def feed(self, text: str) -> Passed:
        self.held += text
        if "broken" in self.held:
            raise ValueError("broken")
        if "slow" in self.held:
            await asyncio.sleep(60)
        head, blank, rest = self.held.rpartition(" ")
        self.held = rest
        if "last" in head:
            return Passed(head.partition("last")[0], ended="word")
        return Passed(head + blank)

    def end(self) -> Passed:
        text, self.held = self.held, ""
        return Passed(text)


class Loud:
    """Writes in capitals."""

    held = ""

    def feed(self, text: str) -> Passed:
        return Passed(text.upper(), ("case",))

    def end(self) -> Passed:
        return Passed("!")


async def test_a_filter_reads_what_the_one_before_it_passes() -> None:
    assert (await passed_by(chain(Words, Loud), [*"two words"])).text == "TWO WORDS!"
    assert (await passed_by(chain(Loud, Words), [*"two words"])).text == "TWO WORDS!"


async def test_behind_a_filter_that_ends_the_answer_the_others_decide_the_rest() -> None:
    passed = await passed_by(chain(Loud, Words, Loud), ["a last b "])
    assert passed == Passed("A LAST B !!", ("f0.case", "f2.case", "f2.case"))
    ended = await passed_by(chain(Words, Loud), ["a last b "])
    assert ended == Passed("A !", ("f1.case",), "f0.word")


async def test_changes_and_the_end_are_reported() -> None:
    told: list[Passed] = []
    await passed_by(Chain([Setup("loud", Loud, 5.0, fail_open=False)], told.append), ["a ", "b"])
    await passed_by(Chain([Setup("words", Words, 5.0, fail_open=False)], told.append), ["a ", "last "])
    assert told == [Passed("A ", ("loud.case",)), Passed("B", ("loud.case",)), Passed(ended="words.word")]


async def test_the_earliest_end_counts() -> None:
    address = patterns({"secrets": "pass", "emails": "end"})
    passed = await passed_by(chain(Words, address), ["bob a@b.co last "])
    assert passed == Passed("bob ", ended="f1.email")


@pytest.mark.parametrize("text", ["all is broken now", "all is slow now"])
async def test_a_filter_that_fails_or_is_late_fails_the_answer_or_passes_what_it_held(text: str) -> None:
    pieces = [text[place : place + 5] for place in range(0, len(text), 5)]
    with pytest.raises(Unavailable, match="a text could not be filtered"):
        await passed_by(Chain([Setup("words", Words, 0.05, fail_open=False)]), pieces)
    assert await passed_by(Chain([Setup("words", Words, 0.05, fail_open=True)]), pieces) == Passed(text)


def test_a_caller_has_the_filters_of_the_gateway_the_tenant_and_the_key_once() -> None:
    options = {"own": {"plugin": "patterns", "on": "both"}, "patterns": {}}
    installed = InstalledFilters(GatewaySettings(filters=["patterns"], filter_options=options))
    owned = [OwnedLimits("tenant t", "t", Limits(filters=("own",))), OwnedLimits("key k", "k", Limits())]
    own = OwnedLimits("key l", "l", Limits(filters=("patterns", "own")))
    assert installed.answer_filters(Caller()) == ("patterns",)
    assert installed.answer_filters(Caller(limits=(*owned, own))) == ("patterns", "own")
    assert installed.prompt_filters(Caller(limits=(*owned, own))) == ("own",)
    installed.require(["patterns", "own"])
    with pytest.raises(Unavailable, match="'other'"):
        installed.chain(["own", "other"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"other": {}}, "no 'other' among outrider.filters: there are moderation, patterns"),
        ({"patterns": {"timeout_s": 0}}, "filter_options of patterns: Expected `float` > 0.0"),
        ({"patterns": {"words": []}}, "filter_options of patterns: Object contains unknown field `words`"),
        ({"moderation": {}}, "filter_options of moderation: Object missing required field `url`"),
    ],
)
def test_a_filter_that_cannot_be_set_up_is_refused_at_the_start(options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        InstalledFilters(GatewaySettings(filter_options=json.loads(json.dumps(options))))
    assert message in str(caught.value)
