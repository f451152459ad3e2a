"""The commands and settings of docs/tasks are those that there are."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer
from outrider.cli.main import app
from outrider.cli.settings import effective, parse_sets

PAGES = sorted((Path(__file__).parents[2] / "docs" / "tasks").glob("*.md"))
_COMMAND = re.compile(r"^    (?:[A-Z_]+=\S+ |for .* do )*outrider ((?:.*\\\n)*.*)$", re.MULTILINE)
_SETTING = re.compile(r"--set '?([a-z]+\.[\w.]+=)")


def commands(text: str) -> list[str]:
    """What follows `outrider` in the lines that begin with it."""
    return [match.replace("\\\n", "").partition(";")[0].removesuffix(" &") for match in _COMMAND.findall(text)]


def require(text: str) -> None:
    """Fails unless the commands and the settings of a page exist."""
    for line in commands(text):
        command: Any = typer.main.get_command(app)
        words = shlex.split(line)
        while hasattr(command, "commands"):
            command = command.commands[words.pop(0)]
        command.make_context(command.name, words)
    for setting in _SETTING.findall(text):
        for kind, flags in parse_sets([setting]).items():
            known = {path.partition(".")[0] for path in effective(kind, None, {})}
            assert {key.partition(".")[0] for key in flags} <= known, setting


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_and_settings_exist(page: Path) -> None:
    require(page.read_text())


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("    OUTRIDER_API_KEY=sk-1 outrider upp --model x\n", "upp"),
        ("    outrider up --modell x\n", "--modell"),
        ("| a | `--set verifier.max_runing=1` |\n", "verifier.max_runing"),
        ("| a | `--set verifyer.max_running=1` |\n", "verifyer"),
    ],
)
def test_what_does_not_exist_is_found(text: str, name: str) -> None:
    with pytest.raises(Exception, match=name):
        require(text)
