"""Attacks a mesh started for this: `python -m outrider.loadtest.attack [NAME...]`.

Runs the named attacks in turn, or all. The exit code is 1 if an attack fails: if a process died, a stream of another
tenant was lost, altered or hung, a victim waited longer than it may, or the attacker got a wrong answer.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from pathlib import Path

from outrider.loadtest.attack import output, victims
from outrider.loadtest.attack.mesh import VICTIM, running
from outrider.loadtest.attack.run import ATTACKS, measure_undisturbed, run_attack
from outrider.loadtest.attack.verdict import Attack, Pace, Verdict
from outrider.mesh.telemetry import configure_logs


def main() -> int:
    """Runs the attacks, prints each verdict; returns 1 if an attack fails."""
    options = _options()
    configure_logs("error", "console")
    chosen = [attack for attack in ATTACKS.values() if attack.name in (options.names or ATTACKS)]
    if options.list:
        print("\n".join(f"{attack.name:24} {attack.what}" for attack in chosen))
        return 0
    try:
        quiet, verdicts = asyncio.run(_make(chosen, options.quiet_s))
    except asyncio.CancelledError:
        return 128 + signal.SIGTERM
    if options.out:
        output.write(options.out, quiet, verdicts)
    return int(not all(verdict.passed for verdict in verdicts))


async def _make(chosen: list[Attack], quiet_s: float) -> tuple[Pace, list[Verdict]]:
    task = asyncio.current_task()
    assert task
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    async with running() as mesh, victims.running([mesh.url], mesh.keys[VICTIM]) as watched:
        quiet, verdicts = await measure_undisturbed(watched, quiet_s), list[Verdict]()
        for attack in chosen:
            verdicts.append(await run_attack(mesh, watched, attack, quiet))
            print(output.line(verdicts[-1]), flush=True)
    return quiet, verdicts


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m outrider.loadtest.attack", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="names of attacks; see --list")
    parser.add_argument("--list", action="store_true", help="list the attacks, and run none")
    parser.add_argument("--quiet-s", type=float, default=10.0, help="seconds without an attack, for comparison")
    parser.add_argument("--out", type=Path, help="JSON file for the figures")
    options = parser.parse_args()
    if unknown := [name for name in options.names if name not in ATTACKS]:
        parser.error(f"there is no attack {unknown[0]!r}; there are {', '.join(ATTACKS)}")
    if options.quiet_s <= 0:
        parser.error("--quiet-s must be above 0")
    return options


if __name__ == "__main__":
    sys.exit(main())
