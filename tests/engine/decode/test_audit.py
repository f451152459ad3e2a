"""Finished answers are replayed between steps: an altered one is noticed, and nothing else is."""

from __future__ import annotations

from collections.abc import Sequence as Seq
from dataclasses import replace

import pytest
from outrider.engine.decode.engine import Engine
from outrider.engine.decode.engine_thread import EngineThread
from outrider.engine.decode.outcome import Outcome
from outrider.engine.errors import SettingsError
from outrider.engine.logits.edits import Mask
from outrider.engine.requests.parameters import SamplingParams, Speculation
from outrider.engine.requests.sequence import Request
from outrider.engine.sampling import Sampling
from outrider.engine.settings import EngineSettings
from outrider.engine.target import Target
from outrider.engine.worker import Inbox
from outrider.mesh.telemetry.metrics import REGISTRY
from outrider.verifier.metrics import Metrics
from outrider.verifier.tracing.step_telemetry import StepTelemetry

from tests.engine.engines import VOCABULARY, MakeEngine, outcome_of, random_drafter, request, requests, run
from tests.engine.masks import ALL, Lax

EDITS = SamplingParams(
    repetition_penalty=1.3, frequency_penalty=0.4, logit_bias={7: 2.0}, bad_words=((3,), (4, 5)), logprobs=2, echo=True
)


def replayed(engine: Engine) -> dict[str, int]:
    """Replays all answers that wait; the outcomes so far."""
    while engine.audit():
        pass
    engine.scheduler.check()
    return {outcome: count for outcome, count in engine.auditor.outcomes.items() if count}


def answers(engine: Engine, wanted: Seq[Request]) -> dict[str, list[int]]:
    """The tokens of ``wanted``, one after the other, each replayed at once."""
    made = {}
    for each in wanted:
        made[each.id] = outcome_of(run(engine, [each])[each.id])[0]
        replayed(engine)
    return made


class Liar(Lax):
    """Bans a ``token`` at the answer's index 5 for its first sequence, and nothing for later ones."""

    token, guides = 0, 0

    def guide(self, tokens: list[int], prompt: int, stop_ids: frozenset[int]) -> Lax:
        made = super().guide(tokens, prompt, stop_ids)
        made.banned = self.token if not self.guides else None
        self.guides += 1
        return made

    def mask(self, place: int) -> Mask:
        bits = bytearray(ALL)
        if self.banned is not None and place == self.prompt + 5:
            bits[self.banned // 8] ^= 1 << self.banned % 8
        return Mask(self.tokens, place, bytes(bits))


def liar(token: int) -> Liar:
    made = Liar()
    made.token = token
    return made


def test_untouched_answers_are_the_same_when_they_are_replayed(make_engine: MakeEngine) -> None:
    wanted = requests(16, max_tokens=40)
    wanted[1] = replace(wanted[1], grammar=Lax())
    wanted[2:6] = [replace(each, parameters=EDITS) for each in wanted[2:6]]
    wanted[6] = replace(wanted[6], speculation=Speculation(off=True))
    wanted[7] = replace(wanted[7], stop_ids=frozenset(range(10)))
    engine = make_engine(drafters=[random_drafter()], audit_share=1.0)
    said = answers(engine, wanted)
    assert replayed(engine) == {"same": 16}
    assert said == answers(make_engine(), wanted)
    cut = [replace(each, id=f"{each.id}-on", emitted=said[each.id][:9]) for each in wanted[8:]]
    answers(engine, cut)
    assert replayed(engine) == {"same": 24}


def test_an_altered_answer_is_noticed_with_its_request_and_position(
    make_engine: MakeEngine, caplog: pytest.LogCaptureFixture
) -> None:
    plain = request("altered", prompt=40, answer=30)
    right = answers(make_engine(), [plain])["altered"]
    engine = make_engine(drafters=[random_drafter()], audit_share=1.0, telemetry=StepTelemetry())
    metrics = Metrics("audited", engine)
    altered = answers(engine, [replace(plain, grammar=liar(right[5]))])["altered"]
    assert altered[:5] == right[:5]
    assert altered[5] != right[5]
    assert replayed(engine) == {"different": 1}
    errors = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert errors == ["an answer differs from its replay request='altered' position=5"]
    metrics.update()
    shown = {
        outcome: REGISTRY.get_sample_value("outrider_verifier_audited_total", {"model": "audited", "outcome": outcome})
        for outcome in ("same", "different", "cancelled")
    }
    assert shown == {"same": 0, "different": 1, "cancelled": 0}


def test_a_token_from_before_a_fail_over_is_taken_as_it_is(make_engine: MakeEngine) -> None:
    plain = request("moved", answer=24)
    engine = make_engine(audit_share=1.0)
    right = answers(engine, [plain])["moved"]
    emitted = [*right[:5], (right[5] + 1) % VOCABULARY]
    answers(engine, [replace(plain, emitted=emitted)])
    assert replayed(engine) == {"same": 2}
    beside = answers(make_engine(), [replace(plain, emitted=emitted)])["moved"]
    answers(engine, [replace(plain, emitted=emitted[:3], grammar=liar(right[5]))])
    assert replayed(engine) == {"same": 2, "different": 1}
    assert len(beside) == 18


def test_replays_change_no_token_of_others_and_end_where_requests_wait(make_engine: MakeEngine) -> None:
    wanted = requests(24, max_tokens=30)
    alone = {name: outcome_of(frames) for name, frames in run(make_engine(), wanted).items()}
    engine = make_engine(drafters=[random_drafter()], audit_share=1.0, running=4, pages=80)
    frames: dict[str, list[object]] = {each.id: [] for each in wanted}
    for each in wanted[:6]:
        engine.submit(each)
    left, beside = wanted[6:], 0
    while engine.busy or left:
        for own, frame in engine.step().outputs:
            frames[own.id].append(frame)
        beside += engine.audit() and engine.busy
        if left and len(engine.scheduler.running) < 3:
            engine.submit(left.pop(0))
    assert {name: outcome_of(own) for name, own in frames.items()} == alone
    outcomes = replayed(engine)
    assert beside > 20, "replays run beside requests"
    assert set(outcomes) == {"same", "cancelled"}
    assert sum(outcomes.values()) == 24


def test_a_share_of_the_answers_is_replayed(make_engine: MakeEngine) -> None:
    engine = make_engine(audit_share=0.25)
    answers(engine, requests(10, max_tokens=3))
    assert replayed(engine) == {"same": 2}
    without = make_engine()
    answers(without, requests(10, max_tokens=3))
    assert (replayed(without), without.auditor.outcomes) == ({}, {})


def test_answers_of_slow_grammars_and_of_forgotten_tenants_are_not_replayed(make_engine: MakeEngine) -> None:
    engine = make_engine(audit_share=1.0)
    slow = Lax()
    slow.slow = True
    run(engine, [replace(request("slow"), grammar=slow), request("gone", tenant="gone"), request("kept")])
    engine.audit()
    engine.forget("gone", "erased")
    assert replayed(engine) == {"skipped": 1, "cancelled": 1, "same": 1}


def test_the_engines_thread_replays_when_nothing_else_is_left(make_engine: MakeEngine) -> None:
    engine, inbox, failures = make_engine(audit_share=1.0), Inbox(), list[BaseException]()
    outcomes: list[Outcome] = []
    thread = EngineThread(engine, inbox, outcomes.append, failures.append)
    thread.start()
    inbox.call(lambda: engine.submit(Request("r", "t", [5, 6], Sampling(1.0, seed=3), 40))).result(60)

    def done() -> bool:
        return inbox.call(lambda: engine.auditor.outcomes["same"] == 1 and not engine.auditor.busy).result(60)

    waited = 0
    while not done():
        waited += 1
        assert waited < 100_000
    thread.stop()
    thread.join(60)
    assert failures == []


@pytest.mark.parametrize("wrong", [{"determinism": "fast"}, {"acceptance": "typical"}])
def test_replays_are_refused_where_a_replay_may_differ(wrong: dict[str, str]) -> None:
    with pytest.raises(SettingsError, match=r'audit_share = 0\.5 needs determinism = "strict" and'):
        Target.load(EngineSettings(audit_share=0.5, **wrong))
