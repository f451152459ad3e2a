"""A verifier's engine over a toy target of real architecture."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from sys import maxsize

import pytest
from outrider.kernels.pool import KvPool
from outrider.models.kv.pages import PageTable
from outrider.models.llama import LlamaModel
from outrider.models.speculation import Acceptance, Drafter
from outrider.models.text import Tokenizer
from outrider.verifier.decode.page_cache import PageCache
from outrider.verifier.scheduling.cost_curve import CostCurve
from outrider.verifier.scheduling.plan import Limits
from outrider.verifier.scheduling.scheduler import Scheduler
from outrider.verifier.speculation.drafter_policy import DrafterPolicy

from tests.toy_model import save_toy
from tests.verifier.engines import ALWAYS_PAYS, CheckedEngine, MakeEngine, build_engine


@pytest.fixture
def make_engine(tmp_path: Path) -> MakeEngine:
    """Builds engines over one toy target; keywords set the vocabulary, drafters, limits and determinism.

    Drafters are asked for ever unless they are to be ``judged``, or ``policy`` decides. ``clock`` tells deadlines,
    ``timer`` what steps take.
    """

    def make(
        vocabulary: int = 50,
        drafters: Sequence[Drafter] = (),
        pages: int = 256,
        running: int = 64,
        waiting: int = 100_000,
        prefill_rows: int = 64,
        guesses: int = 512,
        determinism: str = "strict",
        kv_dtype: str = "auto",
        cost: CostCurve = ALWAYS_PAYS,
        rule: Acceptance | None = None,
        rows: int = maxsize,
        static: bool = False,
        aging_s: float = 10.0,
        clock: Callable[[], float] = time.monotonic,
        judged: bool = False,
        policy: DrafterPolicy | None = None,
        pinned: int = 0,
        cache: Callable[[KvPool, Scheduler], PageCache] | None = None,
        timer: Callable[[], float] = time.perf_counter,
        audit_share: float = 0.0,
    ) -> CheckedEngine:
        directory = tmp_path / f"toy-{vocabulary}"
        if not directory.exists():
            save_toy(directory, vocabulary)
        model = LlamaModel.load(directory, dtype="float32", determinism=determinism, kv_dtype=kv_dtype)
        context = model.config.context_length
        limits = Limits(running, waiting, prefill_rows, guesses, 63, 8, context, 0, rows, static, aging_s, pinned)
        scheduler = Scheduler(limits, PageTable(pages), b"toy", clock)
        tokenizer, chosen = Tokenizer.load(directory), policy or (DrafterPolicy() if judged else None)
        return build_engine(model, tokenizer, scheduler, drafters, cost, rule, chosen, cache, timer, audit_share)

    return make
