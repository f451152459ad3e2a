"""The process that tries definitions of grammars: the verifier answers however the process ends."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from outrider.engine.errors import RequestError
from outrider.engine.logits.deep_threads import in_deep_thread
from outrider.engine.logits.grammar import Grammar, Grammars
from outrider.engine.requests.parameters import GrammarText
from outrider.mesh.errors import Internal, InvalidRequest, Unavailable
from outrider.verifier.grammars.grammar_compiler import Compiler
from outrider.verifier.grammars.grammar_trial import Trial

from tests.engine.text.makers import byte_level, word_piece, write
from tests.waiting import eventually

ASKED = "regex", "[ab]{2}c"
_HARM = """
import ctypes, json, os, sys
from outrider.verifier.grammars import grammar_process as child

right = child._try

def spin():
    while True:
        pass

def harm(tokenizer, kind, text):
    match text:
        case "segfault":
            ctypes.string_at(0)
        case "spin":
            spin()
        case "abort":
            os.abort()
        case "memory":
            bytearray(1 << 30)
        case "leave":
            os._exit(3)
        case "hang":
            os.kill(os.getpid(), 19)
        case "panic":
            raise KeyboardInterrupt
    return right(tokenizer, kind, text)

child._try, child.CPU_S = harm, {cpu_s}
child.main(int(sys.argv[1]), int(sys.argv[2]), json.loads(sys.argv[3]))
"""
HARMFUL, PATIENT = _HARM.replace("{cpu_s}", "2.0"), _HARM.replace("{cpu_s}", "60.0")
GARBAGE = """
import sys
from multiprocessing.connection import Connection

line = Connection(int(sys.argv[1]))
line.recv_bytes()
line.send_bytes(b"{}")
while True:
    line.recv_bytes()
    line.send_bytes({answer})
"""
Make = Callable[..., Trial]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], bytes]:
    path = tmp_path_factory.mktemp("tokenizer")
    write(path, byte_level())
    return (path / "tokenizer.json").read_bytes


@pytest.fixture
def make(tokenizer: Callable[[], bytes], tmp_path: Path) -> Iterator[Make]:
    """Builds trials that run the real program or one of the test."""
    made: list[Trial] = []

    def build(program: str | None = None, answer_s: float = 60.0) -> Trial:
        (tmp_path / "program.py").write_text(program or "")
        command = {"program": (sys.executable, str(tmp_path / "program.py"))} if program is not None else {}
        made.append(Trial(tokenizer, 384, [0], answer_s=answer_s, **command))
        return made[-1]

    yield build
    for trial in made:
        trial.kill()


def failed(trial: Trial, text: str) -> RequestError | Unavailable:
    with pytest.raises((RequestError, Unavailable)) as caught:
        trial.run("regex", text)
    return caught.value


def test_one_process_answers_as_long_as_it_lives(make: Make) -> None:
    trial = make()
    read = trial.run(*ASKED)
    assert "[ab]{2}c" in read
    pid = trial.pid
    assert isinstance(failed(trial, "("), RequestError)
    assert trial.run(*ASKED) == read
    assert trial.pid == pid


@pytest.mark.parametrize(
    ("harm", "why"),
    [
        ("segfault", "grammar is nested too deeply"),
        ("spin", "grammar takes more than 1 s to compile"),
        ("abort", "grammar takes more than 512 MB of memory to compile"),
        ("memory", "grammar takes more than 512 MB of memory to compile"),
        ("panic", "grammar cannot be compiled: the compiler failed: KeyboardInterrupt"),
    ],
)
def test_a_definition_that_harms_the_process_is_refused_and_the_next_one_is_compiled(
    make: Make, harm: str, why: str
) -> None:
    trial = make(HARMFUL)
    trial.run(*ASKED)
    refused = failed(trial, harm)
    assert (type(refused), refused.message, refused.param) == (RequestError, why, "grammar")
    assert trial.run(*ASKED)


@pytest.mark.parametrize("harm", ["leave", "hang"])
def test_a_process_that_says_nothing_accuses_no_definition(make: Make, harm: str) -> None:
    trial = make(HARMFUL, answer_s=5.0)
    assert trial.run(*ASKED)
    assert isinstance(failed(trial, harm), Unavailable)
    assert trial.run(*ASKED)


def test_a_process_that_is_killed_by_others_accuses_no_definition(make: Make) -> None:
    trial = make(PATIENT)
    trial.run(*ASKED)
    pid = trial.pid
    assert pid is not None
    spinning = in_deep_thread(lambda: failed(trial, "spin"))
    os.kill(pid, signal.SIGKILL)
    assert isinstance(spinning.result(60), Unavailable)
    assert trial.run(*ASKED)


@pytest.mark.parametrize(
    "answer", ['b"what"', 'b"[1]"', 'b"{}"[:0]', "b'{\"definition\": 3}'", "bytes(17 << 20)", 'b"{" * 100']
)
def test_garbage_is_no_answer(make: Make, answer: str) -> None:
    trial = make(GARBAGE.replace("{answer}", answer))
    assert isinstance(failed(trial, "a"), Unavailable)


@pytest.mark.parametrize("program", ["", "raise SystemExit(1)", "import nothing_of_that_name"])
def test_a_process_that_does_not_start_is_no_fault_of_a_definition(make: Make, program: str) -> None:
    refused = failed(make(program), "a")
    assert isinstance(refused, Unavailable)
    assert refused.message == "no grammar can be compiled at the moment: the process for it does not start"
    assert refused.retry_after == 1.0


def test_a_program_that_is_not_there_is_no_fault_of_a_definition(tokenizer: Callable[[], bytes]) -> None:
    assert isinstance(failed(Trial(tokenizer, 384, [0], ["/nothing/of/that/name"]), "a"), Unavailable)


def test_a_tokenizer_that_cannot_be_guided_is_told(tmp_path: Path) -> None:
    write(tmp_path, word_piece())
    trial = Trial((tmp_path / "tokenizer.json").read_bytes, 200, [1])
    for _ in range(2):
        refused = failed(trial, "a")
        assert isinstance(refused, RequestError)
        assert "another kind of tokenizer" in refused.message
    trial.kill()


def chained(number: int) -> str:
    """A JSON Schema of ``number`` definitions, each with the next one as a property."""
    below = {"type": "object", "properties": {"next": None}}
    defs = {f"d{i}": below | {"properties": {"next": {"$ref": f"#/$defs/d{i + 1}"}}} for i in range(number)}
    return json.dumps({"$ref": "#/$defs/d0", "$defs": defs | {f"d{number}": {"type": "string"}}})


def rules(number: int) -> str:
    """A Lark grammar of ``number`` rules, each of which refers to the next one."""
    return "\n".join(["start: r0", *(f"r{i}: r{i + 1}" for i in range(number)), f'r{number}: "a"', ""])


LARGE = {
    "900 definitions": ("json_schema", chained(900)),
    "1,001 definitions": ("json_schema", chained(1000)),
    "2,000 rules": ("context_free", rules(2000)),
    "4,000 rules": ("context_free", rules(4000)),
    "500 properties": (
        "json_schema",
        json.dumps({"type": "object", "properties": {f"p{i}": {"type": ["string", "number"]} for i in range(500)}}),
    ),
    "an enum of 5,000": ("json_schema", json.dumps({"enum": [f"value {i * i}" for i in range(5000)]})),
    "a choice of 1,000": ("choice", json.dumps([f"the choice of number {i}" for i in range(1000)])),
    "long texts": ("json_schema", json.dumps({"type": "string", "minLength": 10, "maxLength": 100_000})),
    "long lists": ("json_schema", json.dumps({"type": "array", "items": {"type": "integer"}, "maxItems": 100_000})),
}


@pytest.mark.parametrize("name", LARGE)
def test_large_definitions_are_compiled(make: Make, tokenizer: Callable[[], bytes], name: str) -> None:
    kind, text = LARGE[name]
    read = make().run(kind, text)
    message = GrammarText(kind, text)
    grammars = Grammars(tokenizer, 384, frozenset({0}))
    assert in_deep_thread(lambda: grammars.compile(message, read)).result(60)


@pytest.mark.parametrize(
    ("kind", "text", "why"),
    [
        ("regex", "a{1000000}", "too many expressions"),
        ("regex", "(" * 100_000, "invalid regex"),
        ("context_free", 'start: "a"{100000000}', "Too many items"),
        ("context_free", "start: " + "(" * 100_000, "too deeply nested"),
        ("context_free", "root ::= " + "(" * 50_000 + '"a"' + ")" * 50_000, "recursion"),
        ("json_schema", '{"not":' * 50_000, "recursion limit"),
    ],
    ids=["repeated", "open", "repeated rule", "open rule", "deep rule", "deep schema"],
)
def test_what_is_too_large_is_refused_in_a_sentence(make: Make, kind: str, text: str, why: str) -> None:
    trial = make()
    trial.run(*ASKED)
    pid = trial.pid
    with pytest.raises(RequestError, match=why) as caught:
        trial.run(kind, text)
    assert len(caught.value.message) < 500
    assert trial.pid == pid


async def test_what_was_compiled_or_refused_is_known_without_a_process(
    make: Make, tokenizer: Callable[[], bytes]
) -> None:
    trial = make(HARMFUL)
    compiler = Compiler(Grammars(tokenizer, 384, frozenset({0})), trial)
    right, wrong = GrammarText("regex", "[ab]"), GrammarText("regex", "segfault")
    first = await compiler.compile(right, "t")
    with pytest.raises(InvalidRequest, match="nested too deeply"):
        await compiler.compile(wrong, "t")
    assert trial.pid is None
    assert await compiler.compile(right, "t") is first
    with pytest.raises(InvalidRequest, match="nested too deeply"):
        await compiler.compile(wrong, "t")
    assert trial.pid is None


async def test_what_was_compiled_for_one_tenant_is_tried_anew_for_another(
    make: Make, tokenizer: Callable[[], bytes]
) -> None:
    trial = make()
    compiler = Compiler(Grammars(tokenizer, 384, frozenset({0})), trial)
    first = await compiler.compile(GrammarText("regex", "[ab]"), "t")
    before = trial.pid
    trial.kill()
    assert await compiler.compile(GrammarText("regex", "[ab]"), "other") is not first
    assert trial.pid not in (None, before)
    assert await compiler.compile(GrammarText("regex", "[ab]"), "t") is first


async def test_a_tenant_with_many_definitions_has_one_turn_where_another_has_one(
    make: Make, tokenizer: Callable[[], bytes]
) -> None:
    compiler = Compiler(Grammars(tokenizer, 384, frozenset({0})), make())
    ended: list[str] = []

    async def one(tenant: str, index: int) -> None:
        await compiler.compile(GrammarText("regex", f"{tenant}{index}"), tenant)
        ended.append(tenant)

    many = [asyncio.create_task(one("many", index)) for index in range(9)]
    await asyncio.sleep(0)
    await asyncio.gather(one("few", 0), *many)
    assert ended.index("few") <= 1


async def test_a_caller_that_leaves_leaves_the_process_to_others(make: Make, tokenizer: Callable[[], bytes]) -> None:
    compiler = Compiler(Grammars(tokenizer, 384, frozenset({0})), make())
    same = [asyncio.create_task(compiler.compile(GrammarText("regex", "same"), tenant)) for tenant in "abc"]
    await eventually(lambda: any(thread.name == "grammars" for thread in threading.enumerate()))
    same[0].cancel()
    same[1].cancel()
    assert await same[2] is await compiler.compile(GrammarText("regex", "same"), "c")
    assert await compiler.compile(GrammarText("json_schema", json.dumps({"type": "null"})), "a")


class Confused(Grammars):
    """Compiles another definition than it is asked for."""

    def compile(self, message: GrammarText, llg_definition: str | None = None, tenant: str = "") -> Grammar:
        return super().compile(GrammarText("regex", "other"), None, tenant)


async def test_a_grammar_of_another_definition_is_not_used(make: Make, tokenizer: Callable[[], bytes]) -> None:
    compiler = Compiler(Confused(tokenizer, 384, frozenset({0})), make())
    with pytest.raises(Internal):
        await compiler.compile(GrammarText("regex", "[ab]"), "t")
    assert await compiler.compile(GrammarText("regex", "other"), "t")
