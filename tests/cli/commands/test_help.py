"""What `outrider` says of itself: first steps, help, version, completion in shells."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import typer
from outrider.cli.headings import HEADINGS
from outrider.cli.main import app
from rich.text import Text

from tests.cli.calls import CLI, outrider

SCRIPT = Path(sys.executable).with_name("outrider")


def test_alone_it_says_what_to_do_first() -> None:
    done = outrider()
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("\n") < 12
    assert "  outrider up  " in done.stdout
    assert all(len(line) <= 80 for line in done.stdout.splitlines())


def test_commands_of_the_help_are_under_headings_and_up_is_first() -> None:
    done = subprocess.run([*CLI, "-h"], capture_output=True, text=True, env=os.environ | {"COLUMNS": "100"}, check=True)
    lines = done.stdout.splitlines()
    places = [next(place for place, line in enumerate(lines) if f"─ {heading} ─" in line) for heading in HEADINGS]
    assert places == sorted(places)
    assert lines[places[0] + 1].split()[1] == "up"
    for heading, names in HEADINGS.items():
        for name in names:
            place = next(place for place, line in enumerate(lines) if line.startswith(f"│ {name} "))
            assert max(each for each in places if each < place) == places[list(HEADINGS).index(heading)], name
    assert "─ Commands ─" not in done.stdout


@pytest.mark.parametrize("argument", ["--version", "version"])
def test_the_version_is_that_of_the_distribution(argument: str) -> None:
    assert outrider(argument).stdout == f"outrider {metadata.version('outrider')}\n"


def test_a_flag_takes_no_value_and_a_default_in_brackets_is_shown() -> None:
    environment = os.environ | {"COLUMNS": "160"}
    done = subprocess.run([*CLI, "up", "-h"], capture_output=True, text=True, env=environment, check=True)
    secure, verbose = (
        next(line for line in done.stdout.splitlines() if flag in line) for flag in ("--secure", "--verbose")
    )
    assert "<" not in secure + verbose
    assert "runs it in the verifier. [as is profitable]" in done.stdout


def test_no_help_has_a_bracket_that_is_taken_for_markup() -> None:
    for command in _commands(typer.main.get_command(app)):
        for parameter in command.params:
            said = getattr(parameter, "help", None) or ""
            assert Text.from_markup(said).plain == said.replace("\\[", "["), (command.name, parameter.name)


def _commands(command: Any) -> Iterator[Any]:
    yield command
    for below in getattr(command, "commands", {}).values():
        yield from _commands(below)


def test_every_command_has_a_short_option_for_help() -> None:
    for names in (["up"], ["models", "list"], ["tenants"]):
        done = outrider(*names, "-h")
        assert (done.returncode, "Usage: " in done.stdout) == (0, True)


@pytest.mark.skipif(not SCRIPT.exists(), reason="the script is not installed beside Python")
@pytest.mark.parametrize(("typed", "offered"), [("outrider comp", "complete"), ("outrider models v", "verify")])
def test_bash_completes_commands(typed: str, offered: str, tmp_path: Path) -> None:
    """Bash calls the function of the printed script as it does for a user who presses Tab."""
    environment = os.environ | {"PATH": f"{SCRIPT.parent}:{os.environ['PATH']}"}
    printed = subprocess.run(
        [SCRIPT],
        capture_output=True,
        text=True,
        env=environment | {"_OUTRIDER_COMPLETE": "source_bash"},
    )
    words = typed.split()
    call = f"COMP_WORDS=({typed}); COMP_CWORD={len(words) - 1}; _outrider_completion outrider; echo ${{COMPREPLY[@]}}"
    done = subprocess.run(["bash", "-c", f"{printed.stdout}\n{call}"], capture_output=True, text=True, env=environment)
    assert done.stdout.split() == [offered], done.stderr
