"""Models of the Hub on their way here, by the real huggingface_hub from a Hub on this machine."""

from __future__ import annotations

import hashlib
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.hub import COMMIT, NEXT_COMMIT, TOKEN, Hub, Repository, environment, outrider, python

CHUNK = 10 << 20
"""Bytes that huggingface_hub writes at once."""
NEEDED = {"config.json", "model.safetensors", "tokenizer.json"}
LOCATE = "from outrider.engine.store import locate; print(locate({!r}, text_only={}))"


def located(variables: dict[str, str], model: str, text_only: bool = False) -> Path:
    """Where another process finds a model."""
    done = python(variables, LOCATE.format(model, text_only))
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.strip())


def refusal(variables: dict[str, str], model: str) -> str:
    """The sentence with which `outrider models pull` ends."""
    done = outrider(variables, "models", "pull", model)
    assert done.returncode == 1
    *progress, sentence = done.stderr.splitlines()
    assert sentence.startswith("outrider: "), done.stderr
    assert all(line.startswith(f"{model}: ") for line in progress), done.stderr
    return sentence


def test_only_the_files_that_a_model_needs_are_pulled(hub: Hub, toy: Path, tmp_path: Path) -> None:
    done = outrider(environment(hub, tmp_path), "models", "pull", "org/tiny")
    assert done.returncode == 0, done.stderr
    name, place = done.stdout.splitlines()
    assert name == f"org/tiny@{COMMIT}"
    assert {path.name for path in Path(place).iterdir()} == NEEDED
    assert all((Path(place) / name).read_bytes() == (toy / name).read_bytes() for name in NEEDED)
    assert f"org/tiny: {size(toy)} of {size(toy)} MB" in done.stderr
    assert not hub.gets("pytorch_model.bin")


def size(toy: Path) -> str:
    return f"{sum((toy / name).stat().st_size for name in NEEDED) / 1e6:,.1f}"


def test_the_tokenizer_alone_needs_no_weights(hub: Hub, tmp_path: Path) -> None:
    place = located(environment(hub, tmp_path), "org/tiny", text_only=True)
    assert {path.name for path in place.iterdir()} == NEEDED - {"model.safetensors"}
    whole = located(environment(hub, tmp_path), "org/tiny")
    assert whole == place
    assert {path.name for path in place.iterdir()} == NEEDED


def test_a_model_in_pieces_is_pulled_by_its_index(hub: Hub, tmp_path: Path) -> None:
    index = b'{"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}'
    pieces = {"model-1.safetensors": b"1", "model-2.safetensors": b"2", "consolidated.safetensors": b"12"}
    hub.repositories["org/pieces"] = Repository({"model.safetensors.index.json": index, "config.json": b"{}", **pieces})
    place = located(environment(hub, tmp_path), "org/pieces")
    names = {"config.json", "model.safetensors.index.json", "model-1.safetensors", "model-2.safetensors"}
    assert {path.name for path in place.iterdir()} == names


def test_a_download_goes_on_where_the_connection_was_cut(hub: Hub, tmp_path: Path) -> None:
    content = hub.repositories["org/tiny"].files["model.safetensors"] = random.Random(0).randbytes(3 * CHUNK)
    hub.cut_after, hub.cuts = CHUNK + 1000, 2
    place = located(environment(hub, tmp_path), "org/tiny")
    assert (place / "model.safetensors").read_bytes() == content
    assert hub.gets("model.safetensors") == ["", f"bytes={CHUNK}-", f"bytes={2 * CHUNK}-"]


def test_a_download_goes_on_where_an_ended_process_left_it(hub: Hub, toy: Path, tmp_path: Path) -> None:
    content = (toy / "model.safetensors").read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    blobs = tmp_path / "hub" / "models--org--tiny" / "blobs"
    blobs.mkdir(parents=True)
    (blobs / f"{digest}.outrider-partial").write_bytes(content[:12_345])
    place = located(environment(hub, tmp_path), "org/tiny")
    assert (place / "model.safetensors").read_bytes() == content
    assert hub.gets("model.safetensors") == ["bytes=12345-"]
    assert not list(blobs.glob("*partial"))


def test_a_killed_download_leaves_what_it_has(hub: Hub, tmp_path: Path) -> None:
    hub.repositories["org/tiny"].files["model.safetensors"] = bytes(4 * CHUNK)
    hub.cut_after = 2 * CHUNK + 1000
    variables = environment(hub, tmp_path)
    command = [sys.executable, "-c", LOCATE.format("org/tiny", False)]
    with subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        while len(hub.gets("model.safetensors")) < 2:
            assert process.poll() is None
            time.sleep(0.05)
        process.kill()
    (partial,) = (tmp_path / "hub").rglob("*.outrider-partial")
    had = partial.stat().st_size
    assert had >= 2 * CHUNK
    hub.cut_after = None
    hub.requests.clear()
    place = located(variables, "org/tiny")
    assert (place / "model.safetensors").stat().st_size == 4 * CHUNK
    assert hub.gets("model.safetensors") == [f"bytes={had}-"]


def test_a_file_that_is_not_as_the_hub_says_is_thrown_away(hub: Hub, tmp_path: Path) -> None:
    hub.repositories["org/tiny"].wrong = {"model.safetensors"}
    sentence = refusal(environment(hub, tmp_path), "org/tiny")
    assert "model.safetensors came with the SHA-256" in sentence
    hub.repositories["org/tiny"].wrong = set()
    assert located(environment(hub, tmp_path), "org/tiny").is_dir()


def test_what_is_in_the_cache_needs_no_network(hub: Hub, tmp_path: Path) -> None:
    variables = environment(hub, tmp_path)
    place = located(variables, "org/tiny")
    hub.requests.clear()
    assert located({**variables, "HF_HUB_OFFLINE": "1"}, "org/tiny") == place
    assert located(variables, f"org/tiny@{COMMIT}") == place
    assert not hub.requests
    hub.close()
    assert located(variables, "org/tiny") == place
    assert "HF_HUB_OFFLINE forbids the network" in refusal({**variables, "HF_HUB_OFFLINE": "1"}, "org/other")
    assert "cannot be reached" in refusal(variables, "org/other")


def test_a_cache_without_all_files_is_not_taken_for_whole(hub: Hub, tmp_path: Path) -> None:
    variables = environment(hub, tmp_path)
    located(variables, "org/tiny", text_only=True)
    sentence = refusal({**variables, "HF_HUB_OFFLINE": "1"}, "org/tiny")
    assert "org/tiny is not wholly in" in sentence


def test_a_branch_that_moved_on_is_pulled_anew_and_a_commit_is_not(hub: Hub, tmp_path: Path) -> None:
    variables = environment(hub, tmp_path)
    first = located(variables, "org/tiny")
    hub.repositories["org/tiny"].revisions = {"main": NEXT_COMMIT, "v1": COMMIT}
    second = located(variables, "org/tiny")
    assert (first.name, second.name) == (COMMIT, NEXT_COMMIT)
    assert located(variables, "org/tiny@v1") == first
    assert len(hub.gets("model.safetensors")) == 1  # both commits have the same file


def test_the_token_is_sent_and_opens_a_gated_repository(hub: Hub, tmp_path: Path) -> None:
    hub.repositories["org/tiny"].gated = True
    sentence = refusal(environment(hub, tmp_path), "org/tiny")
    assert f"org/tiny is gated: accept its terms at {hub.url}/org/tiny, and set HF_TOKEN" in sentence
    assert "the token in use has no access" in refusal(environment(hub, tmp_path, HF_TOKEN="hf_other"), "org/tiny")
    assert located(environment(hub, tmp_path, HF_TOKEN=TOKEN), "org/tiny").is_dir()
    assert f"Bearer {TOKEN}" in hub.tokens


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        ("org/none", "there is neither a path org/none nor a model of that name at"),
        ("org/tiny@v9", "org/tiny has no revision v9"),
        ("org/tiny:Q4_K_M", "org/tiny has no GGUF files; leave :Q4_K_M out"),
        ("org/pickle", "org/pickle has no weights that can be read, safetensors or GGUF; a.bin is a pickle"),
        (
            "org/x/y",
            "there is no model in org/x/y; a name of the Hub is written org/repository[:file][@revision]",
        ),
        ("./org/tiny", "there is no model in ./org/tiny"),
    ],
)
def test_what_cannot_be_pulled_is_one_sentence(hub: Hub, tmp_path: Path, model: str, sentence: str) -> None:
    hub.repositories["org/pickle"] = Repository({"a.bin": b"", "config.json": b"{}"})
    assert sentence in refusal(environment(hub, tmp_path), model)


def test_a_model_without_room_for_it_is_one_sentence(hub: Hub, tmp_path: Path) -> None:
    variables = environment(hub, tmp_path)
    code = (
        "import shutil\n"
        "from outrider.engine.store import ModelError, locate\n"
        "shutil.disk_usage = lambda path: shutil._ntuple_diskusage(10, 10, 0)\n"
        "try:\n    locate('org/tiny')\nexcept ModelError as error:\n    print(error)\n"
    )
    assert "there is no room for org/tiny" in python(variables, code).stdout
    assert not hub.gets("model.safetensors")


def test_a_cache_that_cannot_be_written_is_one_sentence(hub: Hub, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    sentence = refusal(environment(hub, tmp_path, HF_HUB_CACHE=str(tmp_path / "file")), "org/tiny")
    assert "file" in sentence


def test_processes_that_pull_the_same_model_together_fetch_it_once(hub: Hub, tmp_path: Path) -> None:
    variables = environment(hub, tmp_path)
    command = [sys.executable, "-c", LOCATE.format("org/tiny", False)]
    started = [subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    places = {process.communicate(timeout=120)[0] for process in started}
    assert [process.returncode for process in started] == [0, 0, 0]
    assert len(places) == 1
    assert len(hub.gets("model.safetensors")) == 1
