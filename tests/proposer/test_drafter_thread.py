"""The drafter's thread: prompts that take several rounds, and the context of the drafter."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from outrider.engine.sampling import Sampling
from outrider.engine.speculation import DrafterContext, DraftTree, Opening
from outrider.engine.speculation.drafters.model_drafter import ModelDrafter
from outrider.engine.text import Tokenizer
from outrider.proposer.context import drafter_context
from outrider.proposer.drafter_thread import DrafterThread
from outrider.proposer.settings import ProposerSettings

from tests.toy_model import save_toy

VOCABULARY = 50


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_toy(tmp_path_factory.mktemp("models") / "toy", VOCABULARY)


def test_a_prompt_of_many_rounds_is_read_to_its_end_without_another_word(directory: Path) -> None:
    vocabulary, options = Tokenizer.load(directory).fingerprint, {"prefill_rows": 8}
    made = ModelDrafter(DrafterContext(vocabulary, VOCABULARY, 256, directory, dtype="float32", options=options))
    lengths, first, failures = list[int](), threading.Event(), list[BaseException]()

    def deliver(trees: list[tuple[int, DraftTree]]) -> None:
        lengths.extend(tree.length for _, tree in trees)
        first.set()

    thread = DrafterThread(made, deliver, failures.append)
    thread.post(lambda drafter: drafter.open(1, Opening([7] * 100, Sampling(0.0), 31)))
    thread.start()
    assert first.wait(30)
    thread.stop()
    thread.join(30)
    assert failures == []
    assert set(lengths) == {100}


@pytest.mark.parametrize("dtype", ["auto", "bfloat16"])
def test_the_draft_model_is_loaded_in_the_dtype_that_is_set(directory: Path, dtype: Any) -> None:
    context = drafter_context(ProposerSettings(model=str(directory), dtype=dtype))
    assert (context.model, context.dtype) == (directory, dtype)
