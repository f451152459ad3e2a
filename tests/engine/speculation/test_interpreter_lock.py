"""Short calls of the compiled library keep the interpreter's lock; long calls release it."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator

import pytest
from outrider.engine.models import pocket
from outrider.engine.models.llama import LlamaModel
from outrider.native.drafts import DraftShape, Drawing, NativeDrafts
from outrider.native.library import NativeUnavailable, library

PROMPT = 1500
GREEDY = Drawing(seed=0, temperature=0.0, top_k=0, top_p=1.0, min_p=0.0)


class Counter(threading.Thread):
    """Counts while it holds the interpreter's lock, and releases the lock after each count."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.count, self.over = 0, False

    def run(self) -> None:
        while not self.over:
            self.count += 1
            time.sleep(0)


@pytest.fixture
def counter() -> Iterator[Counter]:
    """A counting thread; a thread keeps the lock until it releases it, since the switch interval is long."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1000)
    counter = Counter()
    counter.start()
    yield counter
    counter.over = True
    counter.join()
    sys.setswitchinterval(interval)


@pytest.fixture(scope="module")
def drafts() -> NativeDrafts:
    try:
        library()
    except NativeUnavailable as error:
        pytest.skip(str(error))
    model = LlamaModel.load(pocket.directory("draft"))
    assert model.compiled is not None
    shape = DraftShape(
        children=4, rows=48, rows_each=6, ahead=8, prefill_rows=PROMPT, context_length=2048, least_value=0.0
    )
    return NativeDrafts(model.compiled, model.new_pool(256, 16), shape)


def counted(drafts: NativeDrafts, counter: Counter, rounds: int = 1) -> int:
    """Number of times that the thread held the lock while trees were drafted."""
    before = counter.count
    for _ in range(rounds):
        drafts.grow()
    drafts.trees(8)
    return counter.count - before


def test_reading_a_prompt_releases_the_interpreter_s_lock_and_growing_a_tree_does_not(
    drafts: NativeDrafts, counter: Counter
) -> None:
    beside_prompts, beside_trees = [], []
    for attempt in range(10):
        drafts.open(1, [attempt + 3] * PROMPT, 8, GREEDY)
        beside_prompts.append(counted(drafts, counter))
        drafts.commit(1, PROMPT, [5])
        beside_trees.append(counted(drafts, counter))
        drafts.close(1)
    assert any(beside_prompts)
    assert not any(beside_trees)


def test_drafts_of_many_sequences_release_the_interpreter_s_lock(drafts: NativeDrafts, counter: Counter) -> None:
    for number in range(16):
        drafts.open(number, [number + 3] * 40, 8, GREEDY)
    drafts.grow()
    beside = []
    for length in range(40, 90):
        for number in range(16):
            drafts.commit(number, length, [5])
        beside.append(counted(drafts, counter, rounds=4))
    assert any(beside)
