from __future__ import annotations

import socket
import subprocess
import sys

from tests.cli.calls import outrider


def test_a_port_that_is_taken_is_one_sentence_and_exit_code_3():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = outrider("up", "--port", str(port))
    assert done.returncode == 3
    said = f"outrider: cannot listen on 127.0.0.1:{port}: Address already in use; `--port 0` takes a free port\n"
    assert done.stderr == said


def test_a_model_directory_that_is_missing_is_one_sentence_and_exit_code_3(tmp_path):
    done = outrider("up", "--port", "0", "--model", str(tmp_path / "nowhere"))
    assert done.returncode == 3
    assert done.stderr.count("\n") == 1
    assert str(tmp_path / "nowhere") in done.stderr


def test_a_model_directory_without_the_tokenizer_or_the_weights_is_one_sentence_and_exit_code_3(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    for made, lacking in (("model.safetensors", "tokenizer.json"), ("tokenizer.json", "weights (*.safetensors)")):
        file = tmp_path / made
        file.touch()
        done = outrider("up", "--port", "0", "--model", str(tmp_path))
        assert (done.returncode, done.stderr.count("\n")) == (3, 1)
        assert f"{tmp_path} lacks {lacking}" in done.stderr
        file.unlink()


def test_an_unreachable_nats_is_an_error_after_the_set_time(unused_tcp_port, tmp_path):
    url = f"nats://127.0.0.1:{unused_tcp_port}"
    done = outrider("up", "--port", "0", "--nats-url", url, "--set", "mesh.nats_wait_s=1", "--log-dir", str(tmp_path))
    assert done.returncode == 3
    assert f"NATS at {url} was not reached within 1 s" in done.stderr


def test_a_setting_that_is_wrong_is_one_sentence_and_exit_code_2():
    done = outrider("up", "--port", "0", "--set", "verifier.page_sise=8")
    assert done.returncode == 2
    assert "did you mean page_size?" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_place_for_a_nats_that_is_not_started_is_refused():
    done = outrider("up", "--port", "0", "--nats-url", "nats://127.0.0.1:4222", "--nats-store", "somewhere")
    assert done.returncode == 2
    assert "--nats-store is for the NATS that is started" in done.stderr


def test_config_check_names_every_mistake_of_a_file(tmp_path):
    path = tmp_path / "outrider.toml"
    path.write_text('[verifier]\nmax_runing = 3\n[proposer]\nthreads = "two"\n')
    done = outrider("config", "check", "--config", str(path))
    assert done.returncode == 2
    assert "verifier: max_runing" in done.stderr
    assert "did you mean max_running?" in done.stderr
    assert "proposer: threads" in done.stderr


def test_config_check_accepts_the_defaults():
    done = outrider("config", "check")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "The settings of gateway, kvcache, proposer, tokenizer, verifier are right.\n"


def test_config_show_prints_the_source_of_a_value(tmp_path):
    path = tmp_path / "outrider.toml"
    path.write_text("[verifier]\nmax_running = 3\n")
    done = outrider("config", "show", "--config", str(path), "--service", "verifier", "--set", "verifier.threads=2")
    lines = {line.split()[0]: line for line in done.stdout.splitlines() if line.strip()}
    assert "3" in lines["max_running"]
    assert "[verifier]" in lines["max_running"]
    assert "flag --threads" in lines["threads"]
    assert "default" in lines["pages"]


def test_a_completion_without_a_mesh_is_one_sentence_and_exit_code_3(unused_tcp_port):
    done = outrider("complete", "x", "--url", f"http://127.0.0.1:{unused_tcp_port}")
    assert done.returncode == 3
    assert done.stderr.endswith("start a mesh with `outrider up`\n")
    assert done.stderr.count("\n") == 1


def test_help_needs_nothing_that_is_slow_to_import():
    code = "import sys; from outrider.cli.main import app; print(*sorted(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"grpc", "httpx", "matplotlib", "nats", "torch"} & set(loaded)
