"""What a new user does with the mesh of `outrider up`, without naming it: ps, complete, chat, run-batch, logs, stop."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from outrider.cli.commands.asking.answer_screen import ended_blocks

from tests.cli.calls import CLI
from tests.cli.running import Up

_PATIENCE_S = 120.0


class User:
    """A user of this machine, who has a runtime directory and a home of its own."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.environment = {"XDG_RUNTIME_DIR": str(home), "XDG_STATE_HOME": str(home / "state"), "TERM": "xterm"}

    def call(self, *arguments: str, given: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*CLI, *arguments], capture_output=True, text=True, env=os.environ | self.environment, input=given
        )


@pytest.fixture(scope="module")
def user(tmp_path_factory: pytest.TempPathFactory) -> User:
    return User(tmp_path_factory.mktemp("home"))


@pytest.fixture(scope="module")
def mesh(user: User) -> Iterator[Up]:
    up = Up("--alias", "gpt-4o", "--log-dir", str(user.home / "logs"), **user.environment)
    while "starts" not in (told := user.call("ps").stdout) and up.process.poll() is None:
        assert "No mesh of this user runs here" in told
    up.wait_for("Ctrl-C drains")
    yield up
    up.kill()


@pytest.fixture(scope="module")
def url(mesh: Up) -> str:
    return mesh.wait_for(r"serves at (\S+)")[0][1]


def test_the_mesh_is_listed_and_found_by_commands_of_both_kinds(user: User, mesh: Up, url: str) -> None:
    head, row = user.call("ps").stdout.splitlines()
    assert head.split() == ["url", "model", "since", "state", "pid", "broker", "logs"]
    assert [row.split()[place] for place in (0, 1, 4, 5)] == [url, "pocket", "serves", str(mesh.process.pid)]
    done = user.call("complete", "def f(", "--max-tokens", "4")
    assert (done.returncode, done.stdout.startswith("def f(")) == (0, True), done.stderr
    assert user.call("tenants", "list").returncode == 0


def test_the_model_answers_by_its_further_name_too(url: str) -> None:
    assert [model["id"] for model in httpx.get(f"{url}/v1/models").json()["data"]] == ["pocket", "gpt-4o"]
    assert httpx.get(f"{url}/v1/models/gpt-4o").json()["id"] == "gpt-4o"
    body = {"prompt": "def f(", "max_tokens": 8, "seed": 1}
    one, two = (httpx.post(f"{url}/v1/completions", json=body | {"model": name}) for name in ("pocket", "gpt-4o"))
    assert one.json()["choices"] == two.json()["choices"]


def test_logs_are_those_of_one_service_or_of_all(user: User, mesh: Up) -> None:
    one, every = user.call("logs", "verifier").stdout, user.call("logs").stdout
    assert json.loads(one.splitlines()[0])["service"] == "verifier"
    assert {"gateway-1", "nats", "tokenizer-1", "verifier-1"} == {line.split()[0] for line in every.splitlines()}
    done = user.call("logs", "proposer")
    assert (done.returncode, "there are gateway, nats, tokenizer, verifier in" in done.stderr) == (2, True)


def test_a_message_through_a_pipe_is_answered_in_plain_text(user: User, mesh: Up) -> None:
    done = user.call("chat", "--max-tokens", "8", "--temperature", "0", given="hi\n")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.strip()
    assert "\x1b" not in done.stdout


class Terminal:
    """A command in a terminal of its own."""

    def __init__(self, user: User, *arguments: str) -> None:
        self.pid, self._terminal = pty.fork()
        if self.pid == 0:
            os.execvpe(CLI[0], [*CLI, *arguments], os.environ | user.environment)
        self.shown = ""

    def type(self, text: str) -> None:
        os.write(self._terminal, text.encode())

    def wait_for(self, pattern: str) -> str:
        """Reads until ``pattern`` is shown; what was shown up to its end, which later calls do not see again."""
        deadline = time.monotonic() + _PATIENCE_S
        while not (found := re.search(pattern, self.shown)):
            assert time.monotonic() < deadline, self.shown
            if select.select([self._terminal], [], [], 1)[0]:
                self.shown += os.read(self._terminal, 4096).decode(errors="replace")
        before, self.shown = self.shown[: found.end()], self.shown[found.end() :]
        return before

    def end(self) -> int:
        """Waits for the end; the exit code."""
        code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        os.close(self._terminal)
        return code


def test_a_narrow_terminal_shows_addresses_whole(user: User, mesh: Up, url: str) -> None:
    listed = Terminal(user, "ps")  # of 80 columns
    assert url in listed.wait_for(re.escape(str(user.home / "logs")))
    assert listed.end() == 0


def test_a_chat_in_a_terminal_keeps_what_was_said_and_forgets_it_when_told(user: User, mesh: Up) -> None:
    chat = Terminal(user, "chat", "--temperature", "0", "--max-tokens", "400")
    chat.wait_for("pocket at .*Ctrl-D ends")
    chat.type("/nothing\r")
    chat.wait_for("There is no command /nothing")
    saved = user.home / "said.json"
    chat.type("tell me of files\r")
    chat.wait_for(r"tokens/s|stopped")
    chat.type(f"/save {saved}\r")
    chat.wait_for("2 messages are in")
    asked, answered = json.loads(saved.read_text())
    assert (asked["content"], answered["role"]) == ("tell me of files", "assistant")
    chat.type("/reset\r")
    chat.wait_for("The conversation is forgotten")
    chat.type(f"/save {saved}\r")
    chat.wait_for("0 messages are in")
    assert json.loads(saved.read_text()) == []
    chat.wait_for("> ")  # before it, a terminal keeps Ctrl-D to itself
    chat.type("\x04")
    assert chat.end() == 0
    history = user.home / "state" / "outrider" / "chat_history"
    assert "tell me of files" in history.read_text()
    assert history.stat().st_mode & 0o077 == 0


def test_a_batch_is_answered_and_goes_on_with_what_has_no_answer(user: User, mesh: Up) -> None:
    body = {"model": "gpt-4o", "prompt": "def f(", "max_tokens": 4}
    lines = [{"custom_id": str(n), "method": "POST", "url": "/v1/completions", "body": body} for n in range(5)]
    lines[3]["body"] = body | {"temperature": -1}
    file, out = user.home / "batch.jsonl", user.home / "batch.results.jsonl"
    file.write_text("\n".join(map(json.dumps, lines)))
    done = user.call("run-batch", str(file), "--concurrency", "2")
    said = f"4 of 5 requests are answered in {out}.\n1 failed, such as 3: status 400, "
    assert (done.returncode, done.stderr.startswith(said)) == (1, True), done.stderr
    results = {each["custom_id"]: each for each in map(json.loads, out.read_text().splitlines())}
    codes = [results[str(number)]["response"]["status_code"] for number in range(5)]
    assert codes == [200, 200, 200, 400, 200]
    assert results["0"]["response"]["body"]["usage"]["completion_tokens"] == 4
    kept = results["1"]["id"]
    out.write_text("".join(f"{json.dumps(results[each])}\n" for each in "13") + '{"id": "cut o')
    lines[3]["body"] = body
    file.write_text("\n".join(map(json.dumps, lines)))
    done = user.call("run-batch", str(file))
    assert (done.returncode, "1 of 5 requests have their answer" in done.stderr) == (0, True)
    again = {each["custom_id"]: each for each in map(json.loads, out.read_text().splitlines())}
    assert (sorted(again), again["1"]["id"]) == (list("01234"), kept)


def test_a_line_that_is_no_request_is_named_before_anything_is_sent(user: User, mesh: Up) -> None:
    file = user.home / "wrong.jsonl"
    file.write_text('{"custom_id": "a", "url": "/v1/completions", "body": {}}\n{"custom_id": "b"}\n')
    done = user.call("run-batch", str(file))
    assert (done.returncode, f"{file}, line 2: " in done.stderr) == (2, True)
    assert not (user.home / "wrong.results.jsonl").exists()


def test_stop_drains_the_mesh_of_its_owner_and_ends_logs_that_are_followed(user: User, mesh: Up, url: str) -> None:
    following = subprocess.Popen(
        [*CLI, "logs", "gateway", "-f"], stdout=subprocess.PIPE, text=True, env=os.environ | user.environment
    )
    other = os.environ | user.environment | {"HOME": str(user.home / "other")}
    done = subprocess.run([*CLI, "stop"], capture_output=True, text=True, env=other)
    assert (done.returncode, f"`outrider stop --url {url}` stops the mesh" in done.stderr) == (2, True)
    done = user.call("stop")
    assert f"mesh of pocket at {url}" in done.stdout
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "Stopped.")
    assert mesh.process.wait(60) == 0
    assert '"event": "stopped"' in following.communicate()[0]
    assert user.call("stop").returncode == 2
    done = user.call("chat", "--url", "http://127.0.0.1:1", given="hi")
    assert (done.returncode, done.stdout, "`outrider up`" in done.stderr) == (3, "", True)


@pytest.mark.parametrize(
    ("text", "ended"),
    [("a", 0), ("a\n\nb", 3), ("```\na\n\nb", 0), ("```\na\n\nb\n```\n\nc", 14), ("a\n\n", 3), ("a\n", 0)],
)
def test_blocks_of_markdown_end_with_an_empty_line_outside_of_code(text: str, ended: int) -> None:
    assert ended_blocks(text) == ended
