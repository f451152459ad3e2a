"""`outrider models` and `outrider up --model` with names of the Hub."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.engine.text.makers import byte_level, write
from tests.hub import COMMIT, NEXT_COMMIT, Hub, Repository, environment, outrider, python, running_hub
from tests.toy_model import save_toy

_READY_S = 240.0


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A toy model with a tokenizer of bytes."""
    directory = tmp_path_factory.mktemp("toys") / "tiny"
    made = byte_level()
    save_toy(directory, made.get_vocab_size())
    config = json.loads((directory / "config.json").read_text())
    write(directory, made)
    (directory / "config.json").write_text(json.dumps(config | {"eos_token_id": 0}))
    return directory


@pytest.fixture
def hub(tiny: Path) -> Iterator[Hub]:
    with running_hub() as hub:
        hub.repositories["org/tiny"] = Repository.of(tiny)
        yield hub


def test_pulled_models_are_listed_verified_and_removed(hub: Hub, tmp_path: Path) -> None:
    variables = environment(hub, tmp_path)
    assert outrider(variables, "models", "list").stdout == ""
    assert outrider(variables, "models", "pull", "org/tiny").returncode == 0
    (line,) = outrider(variables, "models", "list").stdout.splitlines()
    name, revision, commit, size, unit, kind, place = line.split()
    assert (name, revision, commit, unit, kind) == ("org/tiny", "main", COMMIT[:12], "MB", "safetensors")
    assert float(size) > 0
    assert outrider(variables, "models", "verify").stdout == f"{place}: noted, for the first time\n"
    assert outrider(variables, "models", "verify", "org/tiny").stdout == f"{place}: as noted\n"
    kept = outrider(variables, "models", "remove", "org/tiny", given="n\n")
    assert (kept.returncode, Path(place).is_dir()) == (1, True)
    removed = outrider(variables, "models", "remove", "org/tiny", "--yes")
    assert (removed.returncode, Path(place).exists()) == (0, False)
    assert "MB freed" in removed.stdout
    assert outrider(variables, "models", "list").stdout == ""
    assert not list(tmp_path.rglob("manifests/*.json"))


def test_one_revision_or_one_file_is_removed_alone(hub: Hub, tmp_path: Path) -> None:
    variables = environment(hub, tmp_path)
    hub.repositories["org/tiny"].revisions = {"main": NEXT_COMMIT, "v1": COMMIT}
    hub.repositories["org/quants"] = Repository({"t-Q4_0.gguf": b"four", "t-Q8_0.gguf": b"eight!"})
    for name in ("org/tiny", "org/tiny@v1", "org/quants:Q4_0", "org/quants:Q8_0"):
        assert outrider(variables, "models", "pull", name).returncode == 0
    for name in ("org/tiny@v1", "org/quants:Q4_0"):
        assert outrider(variables, "models", "remove", name, "--yes").returncode == 0
    lines = outrider(variables, "models", "list").stdout.splitlines()
    assert [line.split()[:2] for line in lines] == [["org/quants:t-Q8_0.gguf", "main"], ["org/tiny", "main"]]
    assert outrider(variables, "models", "verify").returncode == 0


def test_a_changed_file_is_named_and_accepted_with_renew(tiny: Path, hub: Hub, tmp_path: Path) -> None:
    variables = environment(hub, tmp_path)
    place = outrider(variables, "models", "pull", "org/tiny").stdout.splitlines()[1]
    blob = (Path(place) / "model.safetensors").resolve()
    blob.write_bytes(blob.read_bytes()[:-1] + b"!")
    refused = outrider(variables, "models", "verify", "org/tiny")
    assert refused.returncode == 1
    assert re.fullmatch(
        r"outrider: \S+model\.safetensors has the SHA-256 .* accepts the model as it is\n", refused.stderr
    )
    assert outrider(variables, "models", "verify", "--renew", "org/tiny").returncode == 0
    assert outrider(variables, "models", "verify", "org/tiny").stdout == f"{place}: as noted\n"


@pytest.mark.parametrize("command", ["verify", "remove"])
def test_a_model_that_is_not_in_the_cache_is_one_sentence(hub: Hub, tmp_path: Path, command: str) -> None:
    done = outrider(environment(hub, tmp_path), "models", command, "org/none")
    assert done.returncode == 1
    assert re.fullmatch(r"outrider: org/none is not in \S+; `outrider models list` lists what is\n", done.stderr)


def test_an_installation_without_huggingface_hub_says_what_to_install(hub: Hub, tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['huggingface_hub'] = None; sys.argv = ['outrider', 'models', 'list']\n"
        "from outrider.cli.main import main; main()"
    )
    done = python(environment(hub, tmp_path), code)
    assert done.returncode == 1
    assert done.stderr == "outrider: models of the Hub need huggingface_hub: pip install 'outrider[all]'\n"


def test_up_with_a_model_that_the_hub_lacks_ends_before_a_service_starts(hub: Hub, tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    done = outrider(environment(hub, tmp_path), "up", "--port", "0", "--model", "org/none", "--log-dir", str(logs))
    assert done.returncode == 3
    assert done.stderr.startswith("outrider: tokenizer.model: there is neither a path org/none nor a model")
    assert not logs.exists()


def test_a_model_of_the_hub_is_served_under_its_name_and_fetched_by_one_process(hub: Hub, tmp_path: Path) -> None:
    variables = environment(hub, tmp_path)
    command = [sys.executable, "-c", "from outrider.cli.main import main; main()", "up", "--port", "0"]
    command += [
        "--model",
        "org/tiny",
        "--draft",
        "org/tiny",
        "--proposers",
        "1",
        "--log-dir",
        str(tmp_path / "logs"),
    ]
    with subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as up:
        try:
            url = _url(up)
            infos = [path for _, path, _ in hub.requests if path.startswith("/api/models")]
            body = {"model": "org/tiny", "prompt": "a b", "max_tokens": 4, "ignore_eos": True}
            answer = httpx.post(f"{url}/v1/completions", json=body, timeout=60).json()
            models = [model["id"] for model in httpx.get(f"{url}/v1/models").json()["data"]]
            one = httpx.get(f"{url}/v1/models/org/tiny").json()["id"]
        finally:
            up.send_signal(signal.SIGINT)
            up.communicate(timeout=120)
    assert answer["usage"]["completion_tokens"] == 4, answer
    assert (models, one) == (["org/tiny"], "org/tiny")
    assert len(infos) == 1
    assert len(hub.gets("model.safetensors")) == 1
    assert up.returncode == 0


def _url(up: subprocess.Popen[str]) -> str:
    """The address at which a mesh serves, once it does."""
    assert up.stdout is not None
    deadline, lines = time.monotonic() + _READY_S, []
    while time.monotonic() < deadline and (line := up.stdout.readline()):
        lines.append(line)
        if found := re.search(r"serves at (\S+)", line):
            return found[1]
    raise AssertionError("".join(lines))
