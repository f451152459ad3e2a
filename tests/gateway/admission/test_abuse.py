"""The rules of abuse, with a clock of their own."""

from __future__ import annotations

import pytest
from outrider.gateway.abuse import Sample, Source, Watch
from outrider.gateway.request.generation import Generation, Messages, Text, Tokens, samples_of
from outrider.gateway.settings import AbuseSettings, GatewaySettings
from outrider.mesh.config import load
from outrider.mesh.telemetry import REGISTRY
from outrider.wire.sampling import SamplingParams

ACME = Source("key 1", "acme", "192.0.2.1")
QUIET = AbuseSettings(rate_least=20, refusals=5, prompt_choices=5, prefix_requests=5, logprobs_requests=5, delay_s=1.5)
PLAIN = Sample(1, 1)


class Clock:
    """Seconds that a test sets."""

    def __init__(self) -> None:
        self.now = 600_000.0

    def __call__(self) -> float:
        return self.now


def given(signal: str) -> float:
    return REGISTRY.get_sample_value("outrider_gateway_abuse_signals_total", {"signal": signal}) or 0.0


@pytest.mark.parametrize(
    ("signal", "sample"),
    [
        ("repeated_prompt", Sample(1, 1, random=True)),
        ("repeated_prefix", Sample(1, 1, short=True)),
        ("logprobs", Sample(1, 1, logprobs=True)),
    ],
)
def test_a_signal_is_given_once_a_window_for_a_key_and_for_its_tenant(signal: str, sample: Sample) -> None:
    clock, before = Clock(), given(signal)
    watch = Watch(QUIET, clock)
    assert [watch.asked(ACME, [sample]) for _ in range(5)] == [0.0] * 5
    assert given(signal) == before
    assert [watch.asked(ACME, [sample]) for _ in range(20)] == [1.5] * 20
    assert given(signal) == before + 2
    clock.now += 60
    assert watch.asked(ACME, [PLAIN]) == 1.5
    clock.now += 60
    assert watch.asked(ACME, [PLAIN]) == 0.0


def test_choices_count_and_other_prompts_do_not() -> None:
    watch = Watch(QUIET, Clock())
    assert not any(watch.asked(ACME, [Sample(number, number, random=True)]) for number in range(100))
    assert watch.asked(ACME, [Sample(1, 1, choices=6, random=True)])


def test_a_caller_is_measured_by_what_is_usual_for_it() -> None:
    clock, before = Clock(), given("request_rate")
    watch = Watch(QUIET, clock)
    busy = Source("key 2", "busy", "")
    for _ in range(20):
        for source, count in ((ACME, 2), (busy, 100)):
            assert not any(watch.asked(source, [PLAIN]) for _ in range(count))
        clock.now += 60
    assert not any(watch.asked(busy, [PLAIN]) for _ in range(900))
    assert not any(watch.asked(ACME, [PLAIN]) for _ in range(20))
    assert watch.asked(ACME, [PLAIN])
    assert given("request_rate") == before + 2


def test_a_new_caller_has_no_usual_rate() -> None:
    watch = Watch(QUIET, Clock())
    assert not any(watch.asked(ACME, [PLAIN]) for _ in range(1000))


def test_refusals_without_a_valid_key_count_for_the_address_and_not_for_the_key_that_is_claimed() -> None:
    watch, before = Watch(QUIET, Clock()), given("refusals")
    for _ in range(10):
        watch.refused(Source("key 1", "", "203.0.113.9"))
    assert given("refusals") == before + 1
    assert watch.asked(ACME, [PLAIN]) == 0.0
    assert watch.asked(Source("", "default", "203.0.113.9"), [PLAIN]) == 1.5
    for _ in range(10):
        watch.refused(ACME)
    assert given("refusals") == before + 3
    assert watch.asked(ACME, [PLAIN]) == 1.5


def test_by_default_nobody_is_slowed_down_and_a_rule_of_0_is_off() -> None:
    watch = Watch(AbuseSettings(prompt_choices=1), Clock())
    sample = Sample(1, 1, random=True)
    assert not any(watch.asked(ACME, [sample]) for _ in range(10))
    off, before = Watch(AbuseSettings(prompt_choices=0), Clock()), given("repeated_prompt")
    for _ in range(1000):
        off.asked(ACME, [sample])
    assert given("repeated_prompt") == before


def test_many_addresses_do_not_push_out_a_key() -> None:
    watch = Watch(QUIET, Clock())
    for _ in range(6):
        watch.refused(ACME)
    for number in range(5000):
        watch.refused(Source("", "", str(number)))
    assert watch.asked(ACME, [PLAIN]) == 1.5


def test_prompts_of_every_kind_are_compared_as_a_whole_and_by_their_beginnings() -> None:
    def sample(prompt: Text | Messages | Tokens, **sampling: object) -> Sample:
        parameters = SamplingParams(**{"temperature": 0.0} | sampling)
        (made,) = samples_of(Generation(model=None, prompt=prompt, sampling=parameters, choices=3))
        return made

    for kind, unit in ((Text, "a"), (Messages, "a"), (Tokens, [7])):
        one, other = (sample(kind(unit * 300 + unit * more)) for more in (0, 1))
        assert (one.beginning == other.beginning, one.prompt == other.prompt) == (True, False)
    assert one == Sample(one.prompt, one.beginning, 3)
    shown = sample(Text("a"), temperature=0.7, max_tokens=4, logprobs=20)
    assert (shown.random, shown.short, shown.logprobs) == (True, True, True)
    assert not sample(Text("a"), max_tokens=5, logprobs=20).logprobs


def test_thresholds_are_settings() -> None:
    read = load(GatewaySettings, "gateway", flags={"abuse.refusals": "7", "abuse.delay_s": "2"})
    assert (read.abuse.refusals, read.abuse.delay_s, read.abuse.window_s) == (7, 2.0, 60.0)
