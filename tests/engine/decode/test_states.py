"""Drafters that ask get the states of every decided token: those of a forward pass over the whole sequence."""

from __future__ import annotations

import pytest
import torch
from outrider.engine.requests.parameters import Speculation
from outrider.engine.requests.sequence import Request
from outrider.engine.sampling import Sampling
from outrider.engine.speculation import Traits

from tests.engine.drafters import EverythingDrafter, Watcher
from tests.engine.engines import MakeEngine, bought_guesses, preemptions, request, requests, run, said
from tests.kernels.choosing import kernels

_VOCABULARY = 50
_LAYERS = (0, 1, 3)


@pytest.mark.parametrize("kind", ["native", "torch"])
def test_states_of_chunks_and_of_the_accepted_rows_of_trees_are_those_of_the_whole_sequence(
    make_engine: MakeEngine, kind: str
) -> None:
    watcher, wanted = Watcher(_VOCABULARY, 1, _LAYERS), requests(6)
    with kernels(kind):
        engine = make_engine(drafters=[watcher], prefill_rows=8, guesses=4000)
    answers = said(engine, wanted)
    assert answers == said(make_engine(), wanted)
    assert any(len(rows) > 1 for each in watcher.rows.values() for rows in each[5:])
    assert set(watcher.first.values()) == {0}
    watcher.check(engine.runner.model)


def test_states_are_told_once_though_a_preempted_sequence_is_computed_again(make_engine: MakeEngine) -> None:
    watcher = Watcher(_VOCABULARY, 1, _LAYERS)
    engine = make_engine(drafters=[watcher], pages=14, prefill_rows=8)
    lost = preemptions(engine)
    run(engine, [request(f"r{number}", 20, 40) for number in range(4)])
    assert lost
    assert set(watcher.first.values()) == {0}
    watcher.check(engine.runner.model)


@pytest.mark.parametrize("whole", [True, False])
def test_a_prompt_is_computed_again_only_for_a_drafter_that_needs_all_its_states(
    make_engine: MakeEngine, whole: bool
) -> None:
    watcher = Watcher(_VOCABULARY, 1, _LAYERS, whole=whole)
    engine, prompt = make_engine(drafters=[watcher]), [*range(30)]
    for name, drafters in (("first", ("nobody",)), ("second", ()), ("third", ("nobody",))):
        speculation = Speculation(drafters=drafters)
        run(engine, [Request(name, "t", prompt, Sampling(0.0), 8, speculation=speculation)])
    assert list(watcher.first.values()) == [0 if whole else 24]
    assert engine.scheduler.reused == (24 if whole else 48)
    watcher.check(engine.runner.model)


def test_a_request_that_goes_on_from_another_verifier_has_the_states_of_all_its_tokens(make_engine: MakeEngine) -> None:
    watcher = Watcher(_VOCABULARY, 1, _LAYERS)
    engine = make_engine(drafters=[watcher], prefill_rows=8)
    run(engine, [request("r", 20, 24, emitted=[*range(11)])])
    assert list(watcher.first.values()) == [0]
    watcher.check(engine.runner.model)


def test_each_drafter_gets_the_layers_that_it_asks_for(make_engine: MakeEngine) -> None:
    first, last = Watcher(_VOCABULARY, 1, (1,)), Watcher(_VOCABULARY, 1, (0, 2, 3))
    first.name = "first"
    engine = make_engine(drafters=[first, last])
    run(engine, [request("both"), request("one", speculation=Speculation(drafters=("first",)))])
    assert (len(first.rows), len(last.rows)) == (2, 1)
    for watcher in (first, last):
        watcher.check(engine.runner.model)


def test_no_states_are_kept_for_sequences_whose_drafters_need_none(make_engine: MakeEngine) -> None:
    watcher, everything = Watcher(_VOCABULARY, 1, _LAYERS), EverythingDrafter(_VOCABULARY, 1)
    engine = make_engine(drafters=[watcher, everything])
    for names, layers in ((("everything",), ()), ((), _LAYERS), (("everything",), ())):
        engine.submit(request("r", 4, 8, speculation=Speculation(drafters=names)))
        while engine.busy:
            assert engine.guessing.layers(engine.scheduler.running or engine.scheduler.waiting) == layers
            engine.step()
    assert bought_guesses(engine)["everything"]


def test_remote_drafters_get_states_from_the_step_on_in_which_they_ask(make_engine: MakeEngine) -> None:
    engine = make_engine(prefill_rows=8)
    engine.submit(request("r", 20, 12))
    engine.step()
    engine.seen_by({"afar": Traits(layers=_LAYERS)})
    told = []
    while engine.busy:
        told += engine.step().states
    assert [each.start for each in told] == [8, 16, *range(20, 20 + len(told) - 2)]
    assert all(each.states.layers == _LAYERS for each in told)
    assert sum(len(each.states.rows) for each in told) == 20 + 12 - 2 - 8
    assert all(torch.isfinite(each.states.rows).all() for each in told)
    engine.seen_by({})
    engine.submit(request("s", 4, 4))
    while engine.busy:
        assert not engine.step().states
