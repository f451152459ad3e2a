"""A verifier's engine over a toy target of real architecture."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from outrider.models.llama import LlamaModel
from outrider.models.pages import PageTable
from outrider.models.speculation import Acceptance, Drafter
from outrider.models.text import Tokenizer
from outrider.verifier.answer import Answers
from outrider.verifier.budget import CostCurve
from outrider.verifier.engine import Engine
from outrider.verifier.runner import Runner
from outrider.verifier.scheduler import Limits, Scheduler

from tests.toy_model import save_toy

MakeEngine = Callable[..., Engine]

ALWAYS_PAYS = CostCurve([1, 1000], [1.0, 1.0])


@pytest.fixture
def make_engine(tmp_path: Path) -> MakeEngine:
    """Builds engines over one toy target; keywords set the vocabulary, drafters, limits and determinism."""

    def make(
        vocabulary: int = 50,
        drafters: Sequence[Drafter] = (),
        pages: int = 256,
        running: int = 64,
        waiting: int = 100_000,
        prefill_rows: int = 64,
        guesses: int = 512,
        determinism: str = "strict",
        cost: CostCurve = ALWAYS_PAYS,
        rule: Acceptance | None = None,
    ) -> Engine:
        directory = tmp_path / f"toy-{vocabulary}"
        if not directory.exists():
            save_toy(directory, vocabulary)
        model = LlamaModel.load(directory, dtype="float32", determinism=determinism)
        limits = Limits(running, waiting, prefill_rows, guesses, 63, 8, model.config.context_length)
        scheduler = Scheduler(limits, PageTable(pages), b"toy")
        return Engine(Runner(model, pages, 8, rule), scheduler, cost, Answers(Tokenizer.load(directory)), drafters)

    return make
