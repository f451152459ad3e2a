"""A model over two ranks: what it says, and what becomes of it when one dies."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from outrider.engine import LLM, SamplingParams
from outrider.engine.errors import EngineStopped
from outrider.engine.models.llama import LlamaModel
from outrider.engine.settings import EngineSettings
from outrider.engine.speculation.policy.drafter_policy import AskAlways
from outrider.engine.target import Parts, Target
from outrider.kernels.batch import SequenceRows
from outrider.kernels.kv_compact import Kept

from tests.engine.models.runs import step
from tests.processes import followers, has_open
from tests.toy_model import save_toy
from tests.waiting import eventually

VOCABULARY = 131
"""Odd, so that one rank has a token less than the other."""
PROMPTS = [[5, 6, 7, 8] * 5, [9, 9, 9, 9, 9, 9], list(range(40)), [3, 1, 4, 1, 5, 9, 2, 6]]
PARAMS = [
    SamplingParams(max_tokens=32, temperature=0),
    SamplingParams(max_tokens=32, seed=5),
    SamplingParams(max_tokens=32, seed=6, top_k=20, repetition_penalty=1.2),
    SamplingParams(max_tokens=32, seed=7, allowed_token_ids=list(range(20, 90))),
]


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_toy(tmp_path_factory.mktemp("models") / "toy", VOCABULARY, kv_heads=2)


@pytest.fixture(scope="module")
def target(toy: Path) -> Target:
    """Two ranks; the test before the last kills one."""
    names, model = ["ngram", "suffix"], str(toy)
    settings = EngineSettings(model=model, tensor_parallel=2, drafters=names, page_size=8, threads=1, pages=64)
    return Target.load(settings, Parts(policy=AskAlways))


@pytest.fixture(scope="module")
def llm(target: Target) -> Iterator[LLM]:
    with LLM.over(target) as made:
        yield made


def test_two_ranks_compute_what_one_does(target: Target, toy: Path) -> None:
    ids, rows = torch.arange(30), SequenceRows(30, 0, range(4))
    model, alone = target.runner.model, LlamaModel.load(toy)
    (both,) = step(model, model.new_pool(8, 8), [(ids, rows)])
    (one,) = step(alone, alone.new_pool(8, 8), [(ids, rows)])
    torch.testing.assert_close(both, one, atol=1e-4, rtol=1e-4)
    assert model.token_bytes() * 2 == alone.token_bytes()


def test_accepted_rows_move_and_pages_are_wiped_on_both_ranks(target: Target, toy: Path) -> None:
    ids, pages = torch.arange(60), range(8)
    told = []
    for model in (target.runner.model, LlamaModel.load(toy)):
        pool = model.new_pool(8, 8)
        step(model, pool, [(ids[:20], SequenceRows(20, 0, pages))])
        nodes = ids[[50, 20, 51, 21, 22]]
        step(model, pool, [(nodes, SequenceRows(5, 20, pages, [-1, -1, 1, 1, 3]))])
        model.compact(pool, [Kept(pages, 20, [1, 3, 4])])
        (after,) = step(model, pool, [(ids[23:30], SequenceRows(7, 23, pages))])
        model.wipe(pool, [0])
        (wiped,) = step(model, pool, [(ids[23:30], SequenceRows(7, 23, pages))])
        told.append((after, wiped))
        (whole,) = step(model, model.new_pool(8, 8), [(ids[:30], SequenceRows(30, 0, pages))])
        torch.testing.assert_close(after, whole[23:30], atol=1e-4, rtol=1e-4)
        assert (after - wiped).abs().max() > 0.01
    for both, one in zip(*told, strict=True):
        torch.testing.assert_close(both, one, atol=1e-4, rtol=1e-4)


def test_guesses_and_company_change_no_token(llm: LLM) -> None:
    together = llm.generate(PROMPTS, PARAMS)
    plain = [replace(each, speculation=False) for each in PARAMS]
    alone = [llm.generate([prompt], [each])[0] for prompt, each in zip(PROMPTS, plain, strict=True)]
    assert [each.token_ids for each in together] == [each.token_ids for each in alone]
    assert sum(count.accepted for each in together for count in each.guesses.values()) > 0


def test_a_step_that_rank_0_refuses_ends_no_other_rank(target: Target, llm: LLM) -> None:
    model = target.runner.model
    with pytest.raises(IndexError, match="out of the model's range"):
        step(model, model.new_pool(1, 8), [(torch.tensor([VOCABULARY]), SequenceRows(1, 0, [0]))])
    assert len(llm.generate([[1, 2]], SamplingParams(max_tokens=2, ignore_eos=True))[0].token_ids) == 2


def test_a_second_model_over_ranks_in_one_process_is_refused(llm: LLM, toy: Path) -> None:
    with pytest.raises(ValueError, match="another model of this process runs over several ranks"):
        LLM(toy, tensor_parallel=2, threads=1)


def test_requests_learn_within_seconds_that_a_rank_has_died(target: Target, llm: LLM) -> None:
    assert target.ranks is not None
    (pid,) = target.ranks.pids
    stream = llm.stream([1, 2, 3], SamplingParams(max_tokens=4000, ignore_eos=True))
    next(stream)
    os.kill(pid, signal.SIGKILL)
    began = time.monotonic()
    with pytest.raises(EngineStopped, match="rank"):
        for _ in stream:
            pass
    with pytest.raises(EngineStopped, match="rank"):
        llm.generate([[1]])
    assert time.monotonic() - began < 20


PROGRAM = """
import sys, time
from outrider.engine.settings import EngineSettings
from outrider.engine.target import Target
target = Target.load(EngineSettings(model=sys.argv[1], tensor_parallel=2, threads=1, drafters=(), pages=64))
print(*target.ranks.pids, flush=True)
time.sleep(600)
"""


def test_other_ranks_end_with_rank_0(toy: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", PROGRAM, str(toy)], stdout=subprocess.PIPE, text=True) as leader:
        assert leader.stdout is not None
        (pid,) = map(int, leader.stdout.readline().split())
        leader.kill()
    asyncio.run(eventually(lambda: not Path(f"/proc/{pid}").exists()))


@contextmanager
def loading(toy: Path, tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Rank 0, and the process id of rank 1: both read a ``config.json`` that does not come."""
    model = tmp_path / "toy"
    shutil.copytree(toy, model)
    command = [sys.executable, "-c", PROGRAM, str(model)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as leader:
        asyncio.run(eventually(lambda: followers(leader.pid)))
        (pid,) = followers(leader.pid)
        config = tmp_path / "config.json"
        os.mkfifo(config)
        end = os.open(config, os.O_RDWR)
        try:
            config.replace(model / config.name)
            asyncio.run(eventually(lambda: all(has_open(each, config.name) for each in (pid, leader.pid))))
            yield leader, pid
        finally:
            leader.kill()
            os.close(end)


def test_rank_0_names_a_rank_that_dies_while_both_load(toy: Path, tmp_path: Path) -> None:
    with loading(toy, tmp_path) as (leader, pid):
        os.kill(pid, signal.SIGKILL)
        _, said = leader.communicate(timeout=60)
    assert "SettingsError: rank 1 of 2 ended with code -9" in said


def test_another_rank_ends_with_rank_0_while_both_load(toy: Path, tmp_path: Path) -> None:
    with loading(toy, tmp_path) as (leader, pid):
        leader.kill()
        asyncio.run(eventually(lambda: not Path(f"/proc/{pid}").exists()))
