"""Embeddings take a share of the time while answers are computed, and all of it otherwise."""

from __future__ import annotations

from tests.engine.engines import VOCABULARY, CheckedEngine, MakeEngine, Rows, request, run, watch

TEXTS = [request(f"text{index}", prompt=40, answer=0, pooling="last") for index in range(4)]


def bounded(make_engine: MakeEngine, running: int = 8) -> CheckedEngine:
    """An engine with a tenth of the time for embeddings, in steps of up to 16 rows; each step takes a second."""
    now = [0.0]
    share = {"embedding_rows": 16, "embedding_share": 0.1}
    engine = make_engine(VOCABULARY, running=running, clock=lambda: now[0], timer=lambda: now[0], **share)
    engine.runner.before = lambda: now.__setitem__(0, now[0] + 1.0)
    return engine


def embedded(steps: list[Rows]) -> list[int]:
    """Rows of texts in each step."""
    return [sum(rows for name, (rows, _) in step.items() if name.startswith("text")) for step in steps]


def test_beside_an_answer_texts_have_rows_in_a_tenth_of_the_time(make_engine: MakeEngine) -> None:
    engine = bounded(make_engine)
    engine.submit(request("chat", answer=100))
    engine.step()
    steps = watch(engine)
    run(engine, TEXTS)
    beside = embedded([step for step in steps if "chat" in step])
    assert beside[0] == 16, "the first rows come at once"
    assert set(beside) == {0, 16}
    assert 9 <= beside[1:].index(16) + 1 <= 10
    assert 9 <= sum(map(bool, beside)) <= 12


def test_a_prompt_that_comes_behind_texts_is_computed_before_them(make_engine: MakeEngine) -> None:
    engine = bounded(make_engine)
    for text in TEXTS:
        engine.submit(text)
    engine.step()
    steps = watch(engine)
    run(engine, [request("chat", prompt=60, answer=2)])
    assert steps[0]["chat"][0] == 48, "16 of 64 rows are of texts"
    assert embedded(steps[1:2]) == [0]


def test_without_answers_texts_have_all_rows(make_engine: MakeEngine) -> None:
    engine = bounded(make_engine)
    steps = watch(engine)
    run(engine, TEXTS)
    assert embedded(steps) == [64, 64, 32]


def test_texts_hurry_while_an_answer_waits_for_their_slots(make_engine: MakeEngine) -> None:
    engine = bounded(make_engine, running=3)
    engine.submit(request("chat", answer=100))
    engine.step()
    for text in TEXTS[:2]:
        engine.submit(text)
    engine.step()
    steps = watch(engine)
    run(engine, [request("late", answer=2)])
    assert embedded(steps)[:2] == [64, 0]
    assert "late" in steps[1]
