"""The comparison with other engines: its figures, and engines that end or cannot be installed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from outrider.loadtest.load.turns import Case, Matrix, Plan, Turn, measure
from outrider.loadtest.peers import __main__ as compare
from outrider.loadtest.peers import environments, llama, openvino, ratios, real, ways
from outrider.loadtest.peers.environments import PeerMissing
from outrider.loadtest.peers.openvino_process import Peer, PeerAnswers, PeerConfig, weight_format
from outrider.measure.chats.supply import ChatSupply
from outrider.measure.load.prompts import PromptsError

REAL, GGUF = os.environ.get("TEST_MODEL"), os.environ.get("TEST_GGUF")
ALONE, EIGHT = Case("edit", 0.0, 1), Case("edit", 0.0, 8)
CODE = Case("code", 0.0, 1)
ANSWERS_TWICE = """
import json, sys
for line in sys.stdin:
    request = json.loads(line)
    tokens = [[request["streams"]] * most for most in request["max_tokens"]]
    print(json.dumps({"seconds": 0.5, "tokens": tokens, "prompt_tokens": [7] * len(tokens)}), flush=True)
    if request["mode"] == "lookup":
        break
"""


def test_a_peer_answers_line_by_line_and_its_end_is_an_error() -> None:
    command = [sys.executable, "-c", ANSWERS_TWICE]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        peer = Peer(process)
        assert peer.answer(PeerConfig("plain"), 1, ["a", "b"], [3, 2]) == PeerAnswers(0.5, [[1, 1, 1], [1, 1]], [7, 7])
        turn = openvino.turn("OpenVINO lookup", EIGHT, 0, peer.answer(PeerConfig("lookup"), 8, ["a"], [4]))
        assert (turn.summary.tokens_per_s, turn.summary.prompt_tokens) == (8.0, 7)
        process.wait(30)
        with pytest.raises(SystemExit, match="OpenVINO ended"):
            peer.answer(PeerConfig("plain"), 1, ["a"], [1])


def model(folder: Path, **config: str) -> Path:
    folder.mkdir()
    (folder / "config.json").write_bytes(msgspec.json.encode(config))
    return folder


def test_the_weights_are_exported_in_the_checkpoints_precision(tmp_path) -> None:
    assert weight_format(model(tmp_path / "a", dtype="float32")) == "fp32"
    assert weight_format(model(tmp_path / "b", torch_dtype="bfloat16")) == "fp16"
    assert weight_format(model(tmp_path / "c")) == "fp16"


def test_a_model_has_its_workloads(tmp_path) -> None:
    options = compare.read(["--model", str(model(tmp_path / "m")), "--concurrency", "2"])
    assert (options.workloads, options.concurrency, options.max_tokens) == (["edit", "code"], [2], None)


def test_a_gguf_file_alone_is_the_model_of_both_engines(tmp_path) -> None:
    (tmp_path / "m.gguf").touch()
    options = compare.read(["--gguf", str(tmp_path / "m.gguf")])
    assert options.workloads == ["edit", "code"]
    thresholds = list(ratios.judge(Matrix(turns_of(CODE, SPEEDS)), real.rivals(options)))
    assert [(threshold.least, "llama.cpp" in str(threshold)) for threshold in thresholds] == [(1.5, True)]


def test_requests_of_prefill_are_long_and_answered_by_one_token() -> None:
    chats = ChatSupply(3).take("prefill", 4, 0.0)
    assert {chat.max_tokens for chat in chats} == {1}
    assert all(3000 < len(chat.text) < 8000 for chat in chats)
    assert len({chat.text for chat in chats}) == 4


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (["--model", "{}/none"], "--model {}/none is no directory of a Hugging Face model"),
        (["--model", "{}/m", "--draft", "{}"], "--draft {} is no directory of a Hugging Face model"),
        (["--model", "{}/m", "--gguf", "{}/none.gguf"], "--gguf {}/none.gguf is no file"),
        (["--model", "{}/m", "--gguf", "{}/f", "--draft-gguf", "{}"], "--draft-gguf {} is no file"),
        (["--model", "{}/m", "--draft-gguf", "{}/f"], "--draft-gguf needs --gguf FILE"),
        (["--model", "{}/m", "--peers", "openvino", "llama"], "--peers llama needs --gguf FILE"),
        (["--gguf", "{}/f", "--draft", "{}/m"], "--draft needs --model DIR"),
        ([], "it needs --model DIR or --gguf FILE"),
        (["--peers", "vllm"], "invalid choice: 'vllm'"),
        (["--model", "{}/m", "--concurrency", "0"], "numbers must be at least 1"),
        (["--model", "{}/m", "--guesses", "5", "0"], "numbers must be at least 1"),
        (["--model", "{}/m", "--set", "verifier.dtype"], "it is written as SERVICE.KEY=VALUE"),
    ],
)
def test_wrong_options_are_refused_before_an_engine_starts(given, sentence, tmp_path, capsys) -> None:
    model(tmp_path / "m")
    (tmp_path / "f").touch()
    with pytest.raises(SystemExit):
        compare.main([each.format(tmp_path) for each in given])
    assert sentence.format(tmp_path) in capsys.readouterr().err


def test_every_way_of_the_peers_has_another_name() -> None:
    assert openvino.precisions("avx2 avx512f avx512_bf16") == ("u8", "bf16")
    assert openvino.precisions("avx2 avx512f") == ("u8", "f32")
    configs = openvino.ways([5, 8], ("u8", "bf16"), draft=True)
    assert list(configs)[:4] == [f"OpenVINO {w}, KV u8" for w in ("plain", "lookup of 5", "lookup of 8", "draft of 5")]
    assert len(configs) == 8
    assert configs["OpenVINO lookup of 8, KV bf16"] == PeerConfig("lookup", "bf16", 8)
    assert list(llama.ways(None)) == ["plain", "ngram-simple"]
    assert llama.ways(Path("/d.gguf"))["draft-simple"][:4] == ["--spec-type", "draft-simple", "-md", "/d.gguf"]
    assert openvino.ways([3, 2], ("u8",), draft=True)["OpenVINO draft of 2, KV u8"] == PeerConfig("draft", "u8", 2)


def test_an_environment_that_pip_cannot_make_is_a_peer_that_is_missing_and_is_not_taken_for_made(tmp_path) -> None:
    with pytest.raises(PeerMissing, match="pip ended with 1"):
        environments.make(tmp_path, [f"{tmp_path}/nothing-here"])
    assert (tmp_path / "bin" / "python").exists()
    assert not (tmp_path / environments.MADE).exists()


def test_a_server_that_ends_is_an_error_with_its_last_output(tmp_path) -> None:
    program = tmp_path / "server"
    program.write_text('#!/bin/sh\necho "no such model: $2"\nexit 3\n')
    program.chmod(0o755)
    with (
        pytest.raises(SystemExit, match=r"llama-server did not become ready: no such model: /x\.gguf"),
        llama.running(program, Path("/x.gguf"), [], 1),
    ):
        raise AssertionError("a server that ended was taken for ready")


def turn_of(case: Case, mode: str, repeat: int, speed: float) -> Turn:
    return openvino.turn(mode, case, repeat, PeerAnswers(1.0, [[0] * int(speed)], [40]))


def turns_of(case: Case, speeds: dict[str, tuple[float, ...]]) -> list[Turn]:
    return [turn_of(case, mode, number, each) for mode, row in speeds.items() for number, each in enumerate(row)]


SPEEDS: dict[str, tuple[float, ...]] = {
    "Outrider off": (100, 200, 100),
    "Outrider control": (90, 200, 110),
    "Outrider on": (400, 900, 500),
    "llama.cpp plain": (50, 100, 80),
    "OpenVINO plain, KV u8": (100, 100, 100),
    "OpenVINO plain, KV bf16": (80, 160, 80),
    "OpenVINO lookup of 5, KV u8": (200, 300, 250),
}


def test_the_best_way_of_each_side_is_compared_turn_by_turn(tmp_path, capsys) -> None:
    ratios.publish(turns_of(ALONE, SPEEDS), real.RIVALS, tmp_path / "peers.json", settings={"model": "m"})
    report, shown = msgspec.json.decode((tmp_path / "peers.json").read_bytes()), capsys.readouterr().out
    by_pair = {(each["ours"], each["theirs"]): each["ratio"] for each in report["ratios"]}
    assert by_pair["Outrider on", "OpenVINO lookup of 5, KV u8"] == {"median": 2, "least": 2, "greatest": 3}
    assert by_pair["Outrider off", "llama.cpp plain"] == {"median": 2, "least": 1.25, "greatest": 2}
    assert by_pair["Outrider control", "Outrider off"] == {"median": 1, "least": 0.9, "greatest": 1.1}
    assert "Outrider off / OpenVINO plain, KV u8: 1.00 (1.00 to 2.00)" in shown
    figure = next(each for each in report["figures"] if each["mode"] == "llama.cpp plain")
    assert figure["tokens_per_s"] == {"median": 80, "least": 50, "greatest": 100}
    assert (figure["prompt_tokens"], figure["tokens"]) == (40, 80)
    assert {threshold["what"]: threshold["met"] for threshold in report["thresholds"]} == {
        "Outrider on / OpenVINO lookup of 5, KV u8, edit, T=0, 1 at a time": True,
        "Outrider off / OpenVINO plain, KV u8, edit, T=0, 1 at a time": False,
    }


def test_a_bar_on_an_unmeasured_peer_is_missed_and_pairs_without_bars_have_none() -> None:
    alone = {mode: row for mode, row in SPEEDS.items() if mode.startswith("Outrider")}
    thresholds = list(ratios.judge(Matrix(turns_of(EIGHT, alone)), real.RIVALS))
    assert [(threshold.least, threshold.met, str(threshold).split(": ")[1]) for threshold in thresholds] == [
        (2.0, False, "not measured (at least 2)"),
        (1.4, False, "not measured (at least 1.4)"),
    ]
    assert [threshold.least for threshold in ratios.judge(Matrix(turns_of(CODE, SPEEDS)), real.RIVALS)] == [1.25]
    assert not list(ratios.judge(Matrix(turns_of(Case("edit", 0.0, 4), SPEEDS)), real.RIVALS))


def test_every_way_answers_the_same_requests_and_each_is_first_in_its_turn() -> None:
    calls: list[tuple[str, int, tuple[int, ...]]] = []
    numbers = iter(range(100))

    def recorder(name: str) -> ways.RunTurn[int]:
        def run_turn(case: Case, requests: object, repeat: int) -> Turn:
            assert isinstance(requests, list)
            calls.append((name, repeat, tuple(requests)))
            return turn_of(case, name, repeat, 1)

        return run_turn

    plan = Plan([ALONE, EIGHT], lambda case: [next(numbers)], [-1], 3, 60.0)
    turns = measure(plan, {name: recorder(name) for name in "ab"})
    assert calls[:2] == [("a", -1, (-1,)), ("b", -1, (-1,))]
    order = [(name, requests[0]) for name, _, requests in calls[2:]]
    assert order == [(name, turn) for turn in range(6) for name in ("ab" if (turn // 2 + turn % 2) % 2 == 0 else "ba")]
    assert len(turns) == 12
    assert len(measure(plan._replace(minutes=0.0), {"a": recorder("a")})) == 0


def test_turns_before_requests_run_out_are_kept(capsys) -> None:
    def supply(case: Case) -> list[int]:
        if case == EIGHT:
            raise PromptsError("there are too few")
        return [1]

    plan = Plan([ALONE, EIGHT], supply, [0], 3, 60.0)
    turns = measure(plan, {"a": lambda case, requests, repeat: turn_of(case, "a", repeat, 1)})
    assert [each.case for each in turns] == [ALONE]
    assert "Nothing more is measured: there are too few" in capsys.readouterr().out


@pytest.mark.skipif(not (REAL and GGUF), reason="TEST_MODEL and TEST_GGUF name no real model")
@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_real_model_answers_the_same_prompts_in_every_way_of_every_engine(tmp_path) -> None:
    given = ["--model", str(REAL), "--gguf", str(GGUF), "--peers", "openvino", "llama", "--workloads", "edit"]
    small = ["--concurrency", "1", "2", "--requests", "2", "--max-tokens", "24", "--repeats", "1", "--guesses", "5"]
    assert compare.main([*given, *small, "--out", str(tmp_path / "peers.json")]) == 0
    report = msgspec.json.decode((tmp_path / "peers.json").read_bytes())
    for streams in (1, 2):
        figures = [each for each in report["figures"] if each["case"]["concurrency"] == streams]
        assert len({each["prompt_tokens"] for each in figures}) == 1
        assert len(figures) == 9
        assert all(0 < each["tokens"] <= 24 * 2 * streams for each in figures)
