"""Runs the Python code of the documentation."""

from __future__ import annotations

import asyncio
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer

from tests.gateway.stack import MODEL, Stack, save_model, stack

ROOT = Path(__file__).parents[2]
_FENCED = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_INDENTED = re.compile(r"^    from openai .*?(?=^\S)", re.DOTALL | re.MULTILINE)

BLOCKS = {
    "openai": _INDENTED.findall((ROOT / "README.md").read_text())[0],
    **dict(
        zip(
            ("http", "responses", "grpc"), _FENCED.findall((ROOT / "clients/python/README.md").read_text()), strict=True
        )
    ),
}

LETTER = "x"
PRINTED = {
    "openai": 64 * LETTER,
    "http": f"['{MODEL}']\n{40 * LETTER}\n{200 * LETTER}",
    "responses": f"{100 * LETTER}{400 * LETTER}incomplete\n",
    "grpc": 40 * LETTER,
}
"""One letter for each token that a block requests."""

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A mesh whose model repeats one letter for every prompt and seed."""
    model = save_model(tmp_path_factory.mktemp("models") / "letter")
    _make_certain(model)
    with stack(model, tmp_path_factory.mktemp("logs"), stores=True) as made:
        made.add("gateway", port=made.port, grpc_port=made.grpc_port)
        made.add_model("tokenizer")
        made.add_model("verifier")
        made.wait_ready()
        yield made


def _make_certain(directory: Path) -> None:
    weights = load_file(directory / "model.safetensors")
    for name, weight in weights.items():
        weight.fill_(1 if "norm" in name or "embed" in name else 0)
    weights["lm_head.weight"][Tokenizer.from_file(str(directory / "tokenizer.json")).token_to_id(LETTER)] = 10
    save_file(weights, directory / "model.safetensors")


@pytest.mark.parametrize("name", BLOCKS)
async def test_code_of_the_documentation_prints_the_answer(
    mesh: Stack, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    changes = {"http://127.0.0.1:8080": mesh.url, "http://127.0.0.1:8081": mesh.url, "127.0.0.1:8081": mesh.grpc}
    shown = textwrap.dedent(BLOCKS[name]).replace('"pocket"', f'"{MODEL}"').replace("Client()", f'Client("{mesh.url}")')
    for there, here in changes.items():
        shown = shown.replace(there, here)
    assert mesh.url in shown or mesh.grpc in shown
    await asyncio.to_thread(exec, compile(shown, name, "exec"), {})
    assert capsys.readouterr().out == PRINTED[name]
