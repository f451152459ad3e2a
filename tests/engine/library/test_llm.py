"""Answers of a model in this process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from outrider.engine import LLM, EngineStopped, RequestError, Result, SamplingParams, SettingsError
from outrider.engine.decode.engine import Engine
from outrider.engine.decode.outcome import Outcome
from outrider.engine.settings import EngineSettings
from outrider.engine.speculation import Drafter
from outrider.engine.target import Parts, Target

from tests.waiting import eventually

PROMPTS = ["def f(", "class A:", "for x in y:", "print('a')", "def g(x):"]
LONG = SamplingParams(max_tokens=4000, ignore_eos=True, seed=1)
CHAT = [{"role": "user", "content": "say def"}]


def drawn(seed: int | None = 7, **more: Any) -> SamplingParams:
    return SamplingParams(**{"seed": seed, "max_tokens": 24, "ignore_eos": True, **more})


class Watched(Engine):
    """An engine that notes which requests were cancelled."""

    cancelled: list[str] = []  # noqa: RUF012

    def cancel(self, request_id: str, reason: str | None = None) -> bool:
        self.cancelled.append(request_id)
        return super().cancel(request_id, reason)


class Broken(Engine):
    """An engine that fails at its third step."""

    def step(self) -> Outcome:
        if self.tally.steps == 2:
            raise ArithmeticError("the law of large numbers is repealed")
        return super().step()


class Changed(Engine):
    """An engine that notes what guesses after each change of a drafter."""

    ran: list[str | None] = []  # noqa: RUF012

    def swap(self, name: str, drafter: Drafter | None, **more: Any) -> None:
        super().swap(name, drafter, **more)
        self.ran.append(self.guessing.runs(name, None))


def over(directory: Path, engine: type[Engine], **settings: Any) -> LLM:
    return LLM.over(Target.load(EngineSettings(model=str(directory), drafters=[], **settings), Parts(engine=engine)))


@pytest.fixture
def watched(directory: Path) -> Iterator[LLM]:
    Watched.cancelled = []
    with over(directory, Watched) as made:
        yield made


def test_results_come_in_order_and_do_not_depend_on_company(llm: LLM) -> None:
    together = llm.generate(PROMPTS, drawn())
    alone = [llm.generate(prompt, drawn())[0] for prompt in PROMPTS]
    assert [result.token_ids for result in together] == [result.token_ids for result in alone]
    assert [result.prompt_token_ids for result in together] == [llm.tokenizer.encode(prompt) for prompt in PROMPTS]
    assert {result.finish_reason for result in together} == {"length"}


def test_a_result_says_what_was_guessed(llm: LLM) -> None:
    (result,) = llm.generate("def f(", drawn(temperature=0, max_tokens=200))
    assert result.usage is not None
    assert result.usage.completion_tokens == len(result.token_ids) == len(result.guessed_by) == 200
    assert sum(each.accepted for each in result.guesses.values()) == result.usage.accepted_tokens > 0
    assert sum(each.rejected for each in result.guesses.values()) == result.usage.rejected_tokens
    assert result.usage.steps == 200 - result.usage.accepted_tokens
    assert {name for name in result.guessed_by if name} <= result.guesses.keys() <= {"suffix", "ngram"}
    assert result.drafts is None
    (plain,) = llm.generate("def f(", drawn(temperature=0, max_tokens=200, speculation=False))
    assert (plain.token_ids, plain.guesses) == (result.token_ids, {})
    (drafts,) = llm.generate("def f(", drawn(temperature=0, max_tokens=200, drafters=["ngram"], return_drafts=True))
    assert drafts.guesses.keys() <= {"ngram"}
    assert drafts.drafts is not None
    assert len(drafts.drafts) == drafts.usage.steps  # type: ignore[union-attr]


def test_a_prediction_saves_steps_and_changes_no_token(directory: Path) -> None:
    letters = {"regex": "[QXZ~]{60}", "temperature": 0, "max_tokens": 48, "ignore_eos": False}
    with LLM(directory, page_size=8) as llm:
        (plain,) = llm.generate("def f(", drawn(**letters, speculation=False))
        for right in (plain.text, plain.token_ids):
            (told,) = llm.generate("def f(", drawn(**letters, prediction=right))
            assert told.token_ids == plain.token_ids
            assert told.usage is not None
            assert told.usage.predicted == (told.guesses["prediction"].accepted, told.guesses["prediction"].rejected)
            assert told.usage.steps < 48
        each = [drawn(prediction=text) for text in ("class A", None, "", "nonsense" * 99)]
        assert len({tuple(result.token_ids) for result in llm.generate(["def f("] * 4, each)}) == 1


def test_a_random_seed_is_named_and_gives_the_same_tokens_again(llm: LLM) -> None:
    first, second = llm.generate(["def f("] * 2, drawn(seed=None))
    assert first.seed != second.seed
    assert first.token_ids != second.token_ids
    assert llm.generate("def f(", drawn(seed=first.seed))[0].token_ids == first.token_ids


def test_token_ids_are_prompts_as_texts_are(llm: LLM) -> None:
    ids = llm.tokenizer.encode("def f(")
    texts = llm.generate(["def f(", "class A:"], drawn())
    assert llm.generate(ids, drawn())[0].token_ids == texts[0].token_ids
    mixed = llm.generate([ids, "class A:"], [drawn(), drawn(seed=8)])
    assert mixed[0].token_ids == texts[0].token_ids
    assert mixed[1].token_ids != texts[1].token_ids
    assert llm.generate([]) == []


def test_an_answer_may_take_all_room_and_no_more(llm: LLM) -> None:
    prompt = [5] * (llm.context_length - 3)
    (result,) = llm.generate(prompt, SamplingParams(ignore_eos=True))
    assert len(result.token_ids) == 3
    with pytest.raises(RequestError, match=f"{llm.context_length} tokens") as caught:
        llm.generate([5] * llm.context_length)
    assert caught.value.param == "prompt"


def test_a_stream_is_the_result_in_parts(llm: LLM) -> None:
    (whole,) = llm.generate("def f(", drawn(logprobs=2))
    stream = llm.stream("def f(", drawn(logprobs=2))
    increments = list(stream)
    assert "".join(each.text for each in increments) == whole.text
    assert [token for each in increments for token in each.token_ids] == whole.token_ids
    assert [entry for each in increments for entry in each.logprobs or []] == whole.logprobs
    assert [each.finish_reason for each in increments] == [None] * (len(increments) - 1) + ["length"]
    assert stream.result().token_ids == whole.token_ids
    assert increments[-1].usage is not None


def test_an_echo_stands_before_the_answer(llm: LLM) -> None:
    (result,) = llm.generate("def f(", drawn(echo=True, max_tokens=0, logprobs=0))
    assert (result.text, result.token_ids) == ("def f(", result.prompt_token_ids)
    assert result.logprobs is not None
    assert result.logprobs[0].logprob is None


async def test_event_loops_and_threads_may_ask_at_once(llm: LLM) -> None:
    def in_a_thread(seed: int) -> list[int]:
        return llm.generate("def f(", drawn(seed))[0].token_ids

    async def in_a_loop(seed: int) -> list[int]:
        return [token async for each in llm.astream("def f(", drawn(seed)) for token in each.token_ids]

    with ThreadPoolExecutor(8) as pool:
        futures = [pool.submit(in_a_thread, seed) for seed in range(8)]
        said = await asyncio.gather(*map(in_a_loop, range(8)))
        assert [await asyncio.wrap_future(future) for future in futures] == list(said)
    assert len({tuple(tokens) for tokens in said}) == 8


async def test_chats_are_answered_whole_and_in_parts(llm: LLM) -> None:
    (whole,) = llm.chat(CHAT, drawn())
    assert llm.tokenizer.encode_chat(CHAT) == whole.prompt_token_ids
    assert "".join(each.text for each in llm.stream_chat(CHAT, drawn())) == whole.text
    assert (await llm.astream_chat(CHAT, drawn()).result()).token_ids == whole.token_ids
    two = llm.chat([CHAT, [*CHAT, {"role": "assistant", "content": "def"}, *CHAT]], drawn())
    assert two[0].token_ids == whole.token_ids
    assert len(two[1].prompt_token_ids) > len(whole.prompt_token_ids)


@pytest.mark.parametrize(
    ("asked", "fits"),
    [
        ({"choice": ["yes", "no"]}, lambda text: text in ("yes", "no")),
        ({"regex": "[ab]{3}"}, lambda text: len(text) == 3 and set(text) <= {"a", "b"}),
        ({"grammar": 'root ::= "def" | "class"'}, lambda text: text in ("def", "class")),
        ({"json_schema": {"enum": [1, "a"]}}, lambda text: text in ("1", '"a"')),
        ({"json_schema": '{"const": [true]}'}, lambda text: "".join(text.split()) == "[true]"),
    ],
)
def test_an_answer_follows_its_grammar(llm: LLM, asked: dict[str, Any], fits: Any) -> None:
    for seed in range(3):
        (result,) = llm.generate("def f(", SamplingParams(seed=seed, max_tokens=30, **asked))
        assert (result.finish_reason, fits(result.text)) == ("stop", True), result.text


def test_bad_words_are_texts_or_token_ids(llm: LLM) -> None:
    (free,) = llm.generate("def f(", drawn(temperature=0))
    (by_id,) = llm.generate("def f(", drawn(temperature=0, bad_words=[free.token_ids[:1]]))
    assert by_id.token_ids[0] != free.token_ids[0]
    forms = [llm.tokenizer.encode(form) for form in ("return", " return")]
    banned = [drawn(temperature=2, bad_words=words, max_tokens=200) for words in (["return"], forms, [])]
    by_text, by_ids, unbanned = llm.generate(["def f("] * 3, banned)
    assert by_text.token_ids == by_ids.token_ids != unbanned.token_ids


@pytest.mark.parametrize(
    ("ask", "param", "message"),
    [
        (lambda llm: llm.generate(5), "prompts", "prompts must be a text, token ids, or a list of such prompts"),
        (lambda llm: llm.generate([["a"]]), "prompts", "prompts must be a text, token ids, or a list of such prompts"),
        (lambda llm: llm.generate("a\ud800"), "prompts", "prompts must be a text, token ids, or a list of such"),
        (lambda llm: llm.generate(""), "prompt", "prompt must hold at least one token"),
        (lambda llm: llm.generate([10**6]), "prompt", "prompt holds an id outside the vocabulary of"),
        (lambda llm: llm.generate("a", {"seed": 1}), "params", "params must be one SamplingParams, or one for each of"),
        (lambda llm: llm.generate("a", [drawn()] * 2), "params", "params must be one SamplingParams, or one for each"),
        (lambda llm: llm.stream("a", 5), "params", "params must be SamplingParams, not int"),
        (lambda llm: llm.chat("a"), "messages", "messages must be a list of messages like"),
        (lambda llm: llm.chat([{"role": "user", "content": 5}]), "messages", "messages[0].content must be a string or"),
        (lambda llm: llm.chat([{"role": "user", "content": {1}}]), "messages", "messages are no JSON: Object of type"),
        (lambda llm: llm.generate("a", drawn(drafters=["x"])), "speculation.drafters", "speculation.drafters names x;"),
        (lambda llm: llm.generate("a", drawn(prediction=[10**6])), "prediction", "prediction holds an id outside the"),
        (lambda llm: llm.generate("a", drawn(prediction="a" * 5000)), "prediction", "prediction has 5000 tokens; the"),
        (
            lambda llm: llm.generate("a", drawn(prediction="\ud800")),
            "prediction",
            "prediction must be a text or a list",
        ),
        (lambda llm: llm.generate("a", SamplingParams(regex="(")), "grammar", "grammar cannot be compiled: "),
    ],
)
def test_what_cannot_be_answered_is_refused_in_one_sentence(llm: LLM, ask: Any, param: str, message: str) -> None:
    with pytest.raises(RequestError) as caught:
        ask(llm)
    assert caught.value.param == param
    assert caught.value.message.startswith(message)


def test_one_bad_prompt_among_many_starts_none(watched: LLM) -> None:
    with pytest.raises(RequestError):
        watched.generate([PROMPTS[0], [10**6]], LONG)
    assert not Watched.cancelled


def test_more_prompts_than_the_queue_holds_all_get_answers(directory: Path) -> None:
    with LLM(directory, drafters=[], max_running=1, max_waiting=1) as llm:
        results = llm.generate([[token] for token in range(5, 35)], drawn(max_tokens=2))
    assert [result.prompt_token_ids for result in results] == [[token] for token in range(5, 35)]
    assert {result.finish_reason for result in results} == {"length"}


def test_a_stream_that_is_closed_while_it_waits_takes_no_turn(directory: Path) -> None:
    Watched.cancelled = []
    with over(directory, Watched, max_running=1, max_waiting=1) as llm:
        streams = [llm.stream("a", LONG) for _ in range(6)]
        next(streams[0])
        for stream in streams[:-1]:
            stream.close()
        assert next(streams[-1]).token_ids
        assert len(Watched.cancelled) < len(streams)


async def test_a_stream_that_nobody_reads_ends(watched: LLM) -> None:
    closed = watched.stream("a", LONG)
    next(closed)
    closed.close()
    await eventually(lambda: len(Watched.cancelled) == 1)
    assert closed.result().finish_reason == "cancelled"
    assert len(closed.result().token_ids) == 1
    dropped = watched.stream("a", LONG)
    next(dropped)
    del dropped
    await eventually(lambda: len(Watched.cancelled) == 2)
    with watched.stream("a", LONG) as left:
        next(left)
    await eventually(lambda: len(Watched.cancelled) == 3)


async def test_a_stream_of_an_event_loop_that_nobody_reads_ends(watched: LLM) -> None:
    closed = watched.astream("a", LONG)
    await anext(closed)
    await closed.aclose()
    assert [each async for each in closed] == []
    await eventually(lambda: len(Watched.cancelled) == 1)
    dropped = watched.astream("a", LONG)
    await anext(dropped)
    del dropped
    await eventually(lambda: len(Watched.cancelled) == 2)
    begun = asyncio.Event()

    async def read() -> None:
        async for _ in watched.astream("a", LONG):
            begun.set()

    task = asyncio.create_task(read())
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    del task
    await eventually(lambda: len(Watched.cancelled) == 3)


def test_the_end_of_the_engine_reaches_all_who_wait(directory: Path) -> None:
    llm = over(directory, Broken)

    def ask(_: int) -> str:
        with pytest.raises(EngineStopped) as caught:
            llm.generate("def f(", LONG)
        assert isinstance(caught.value.__cause__, ArithmeticError)
        return str(caught.value)

    with ThreadPoolExecutor(4) as pool:
        said = set(pool.map(ask, range(4)))
    assert said == {"the engine ended by an error: ArithmeticError: the law of large numbers is repealed"}
    with pytest.raises(EngineStopped, match="the engine ended by an error"):
        llm.stream("def f(")


def test_a_closed_llm_says_so_and_may_be_closed_again(directory: Path) -> None:
    llm = over(directory, Engine)
    stream = llm.stream("def f(", LONG)
    next(stream)
    llm.close()
    llm.close()
    with pytest.raises(EngineStopped, match="this LLM is closed"):
        list(stream)
    for ask in (llm.generate, llm.stream, lambda prompt: llm.chat(CHAT)):
        with pytest.raises(EngineStopped, match="this LLM is closed"):
            ask("a")


def test_a_stream_keeps_its_llm(directory: Path) -> None:
    result: Result = over(directory, Engine).stream("def f(", drawn()).result()
    assert len(result.token_ids) == 24


def test_an_llm_that_nothing_refers_to_ends_its_engine(directory: Path) -> None:
    before = set(threading.enumerate())
    llm = over(directory, Engine)
    llm.generate("def f(", drawn())
    (engine,) = [thread for thread in threading.enumerate() if thread not in before and thread.name == "engine"]
    del llm
    engine.join(60)
    assert not engine.is_alive()


def test_a_draft_model_guesses(directory: Path) -> None:
    with LLM(directory, draft=directory, drafters=[]) as llm:
        (result,) = llm.generate("def f(", drawn(max_tokens=200))
    assert result.guesses["model"].accepted > 0


def test_a_model_that_is_not_there_is_one_sentence() -> None:
    with pytest.raises(SettingsError, match=r"^there is no model in /none/x; a name of the Hub is written org/[^.]*$"):
        LLM("/none/x")


def test_a_drafter_changes_while_answers_grow_and_no_token_changes() -> None:
    Changed.ran = []
    params = SamplingParams(max_tokens=120, ignore_eos=True, seed=3, temperature=0.5)
    with LLM.over(Target.load(EngineSettings(), Parts(engine=Changed))) as llm:
        plain = llm.generate(
            PROMPTS[0], SamplingParams(max_tokens=120, ignore_eos=True, seed=3, temperature=0.5, speculation=False)
        )
        with pytest.raises(RequestError, match="names medusa"):
            llm.generate(PROMPTS[0], drawn(drafters=["medusa"]))
        streams = [llm.stream(PROMPTS[0], params) for _ in range(4)]
        beginnings = [next(stream) for stream in streams]
        llm.swap("medusa", "pocket")
        with pytest.raises(SettingsError, match="there is no model in"):
            llm.swap("medusa", "./nowhere")
        results = [stream.result() for stream in streams]
        assert all(beginning.token_ids for beginning in beginnings)
        assert [result.token_ids for result in results] == [plain[0].token_ids] * 4
        assert llm.generate(PROMPTS[0], drawn(drafters=["medusa"]))
        llm.swap("medusa", None)
    assert Changed.ran == ["medusa@v1", None]
    with pytest.raises(EngineStopped, match="closed"):
        llm.swap("medusa", "pocket")
