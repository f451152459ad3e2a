"""The commands and settings of docs/tasks are those that there are."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
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


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_and_settings_exist(page: Path) -> None:
    text = page.read_text()
    for line in commands(text):
        command, words = typer.main.get_command(app), shlex.split(line)
        while isinstance(command, click.Group):
            command = command.commands[words.pop(0)]
        command.make_context(command.name, words)
    for setting in _SETTING.findall(text):
        for kind, flags in parse_sets([setting]).items():
            known = {path.partition(".")[0] for path in effective(kind, None, {})}
            assert {key.partition(".")[0] for key in flags} <= known, setting


def test_a_command_that_does_not_exist_is_found() -> None:
    (line,) = commands("    OUTRIDER_API_KEY=sk-1 outrider upp --model x\n")
    assert line == "upp --model x"
