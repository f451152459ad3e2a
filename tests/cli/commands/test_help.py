"""What `outrider` says of itself: first steps, help, version, completion in shells."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from outrider.cli.headings import HEADINGS

from tests.cli.calls import CLI, outrider

SCRIPT = Path(sys.executable).with_name("outrider")


def test_alone_it_says_what_to_do_first() -> None:
    done = outrider()
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("\n") < 12
    assert "  outrider up  " in done.stdout


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
