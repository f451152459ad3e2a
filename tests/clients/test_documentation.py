"""The Python of the documentation, as it stands there."""

from __future__ import annotations

import asyncio
import re
import textwrap
from pathlib import Path

import pytest

from tests.gateway.stack import MODEL
from tests.gateway.streaming import Gateway

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

pytestmark = pytest.mark.timeout(300)


@pytest.mark.parametrize("name", BLOCKS)
async def test_what_is_shown_prints_an_answer(
    one: Gateway, other: Gateway, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    changes = {"http://127.0.0.1:8080": one.url, "http://127.0.0.1:8081": other.url, "127.0.0.1:8081": one.grpc}
    shown = textwrap.dedent(BLOCKS[name]).replace('"pocket"', f'"{MODEL}"').replace("Client()", f'Client("{one.url}")')
    for there, here in changes.items():
        shown = shown.replace(there, here)
    assert one.url in shown or one.grpc in shown
    await asyncio.to_thread(exec, compile(shown, name, "exec"), {})
    assert len(capsys.readouterr().out.strip()) > 5
