from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
CLIENT = REPOSITORY / "clients" / "python" / "outrider_client" / "grpc" / "inference.binpb"
COMMITTED = REPOSITORY / "wire" / "outrider" / "v1"
PROTOCOLS = sorted((REPOSITORY / "proto" / "outrider" / "v1").glob("*.proto"))


@pytest.fixture(scope="module")
def generated(tmp_path_factory):
    out = tmp_path_factory.mktemp("wire")
    kinds = [f"--{kind}_out={out}" for kind in ("python", "pyi", "grpc_python")]
    subprocess.run(
        [sys.executable, "-m", "grpc_tools.protoc", "-I", REPOSITORY / "proto", *kinds, *PROTOCOLS],
        check=True,
    )
    return out / "outrider" / "v1"


def test_the_committed_wire_code_is_what_the_protocols_generate(generated):
    assert {path.name: path.read_bytes() for path in COMMITTED.glob("*.py*")} == {
        path.name: path.read_bytes() for path in generated.glob("*.py*")
    }


@pytest.mark.parametrize("path", PROTOCOLS, ids=lambda path: path.stem)
def test_a_protocol_is_in_the_package_that_its_path_names(path):
    assert "package outrider.v1;" in path.read_text().splitlines()


def test_the_clients_messages_are_what_the_protocols_generate(tmp_path):
    made = tmp_path / "inference.binpb"
    command = [sys.executable, "-m", "grpc_tools.protoc", "-I", REPOSITORY / "proto", "--include_imports"]
    subprocess.run([*command, f"--descriptor_set_out={made}", "outrider/v1/inference.proto"], check=True)
    assert made.read_bytes() == CLIENT.read_bytes()
