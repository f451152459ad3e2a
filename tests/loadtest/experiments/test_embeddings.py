"""The benchmark of embeddings: its texts, and what its figures say."""

from __future__ import annotations

from itertools import islice

from outrider.loadtest.experiments import embeddings
from outrider.loadtest.experiments.embeddings import (
    AGAIN,
    ALONE,
    BESIDE,
    CONTROL,
    EXACT,
    LLAMA,
    OURS,
    OURS_GGUF,
    THEIRS,
    StreamsTurn,
    TextsTurn,
)


def test_texts_are_of_all_lengths_and_begin_differently() -> None:
    texts = list(islice(embeddings.new_texts(1), 400))
    lengths = sorted(len(text.split()) for text in texts)
    assert (lengths[0] < 20, lengths[-1] > 250) == (True, True)
    assert 40 < lengths[200] < 110, "half are short"
    assert len({text[:60] for text in texts}) == len(texts)


def test_a_way_that_is_slower_or_embeds_something_else_misses_its_threshold() -> None:
    seconds = {OURS: 2.0, CONTROL: 2.2, OURS_GGUF: 3.0, LLAMA: 2.7, THEIRS: 8.0, EXACT: 4.0}
    cosines = {CONTROL: 0.9, OURS: 0.9995}
    turns = [
        TextsTurn(way, repeat, 8, 900, each * (1 + repeat), cosines.get(way, 1.0))
        for way, each in seconds.items()
        for repeat in range(3)
    ]
    shown = list(map(str, embeddings.judge_texts(turns)))
    assert [line.split()[0] for line in shown] == ["met", "missed", "met", "met", "missed", "met"]
    assert f"texts/s, {OURS} / {THEIRS}: 4.00 (at least 1)" in shown[2]
    assert f"texts/s, {OURS_GGUF} / {LLAMA}: 0.90" in shown[4]


def test_streams_that_lose_more_than_a_tenth_of_their_itl_miss_their_threshold() -> None:
    def turn(way: str, itl: float, repeat: int = 0) -> StreamsTurn:
        return StreamsTurn(way, repeat, 4, itl, itl, 2 * itl if way == BESIDE else itl, itl, 100.0, 1.0)

    turns = [turn(ALONE, 50.0), turn(BESIDE, 54.0), turn(AGAIN, 50.0), turn(ALONE, 60.0, 1)]
    shown = {each.what: each for each in embeddings.judge_streams(turns)}
    assert shown[f"ITL mean, alone / {BESIDE}, 4 streams"].met
    assert not shown[f"ITL p95, alone / {BESIDE}, 4 streams"].met
    assert shown[f"ITL p95, alone / {AGAIN}, 4 streams"].value == 1
    assert not any(each.met for each in embeddings.judge_streams([turn(ALONE, 50.0)]))
