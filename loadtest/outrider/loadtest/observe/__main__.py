"""Asks a real Prometheus for all that dashboards and alerts ask: `python -m outrider.loadtest.observe check`.

A mesh with two verifiers and a few tenants is started, and a Prometheus with the configuration of `deploy/observe`.
The tenants send requests; then a flood of requests, the deaths of both verifiers and that of the broker make three
alerts fire. The exit code is 1 if an alert does not fire, a query or a rule answers nothing all the time, or a metric
of `docs/metrics.md` is nowhere. Metrics that never moved are named: most of them count what went wrong.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import sys
import tempfile
from pathlib import Path

from outrider.loadtest.meshes.local_mesh import add_models
from outrider.loadtest.observe import answers, faults, grafana, movement, pictures, prometheus, watched_mesh
from outrider.loadtest.observe.dashboards import read
from outrider.mesh.telemetry import configure_logs


def main() -> int:
    """Writes the dashboards' JSON, or checks queries and rules; returns 1 if the check fails."""
    options = _options()
    if options.command == "dashboards":
        grafana.write()
        return 0
    configure_logs("error", "console")
    if options.pictures:
        options.pictures.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="outrider-observe-") as folder:
        return asyncio.run(_check(options, Path(folder)))


async def _check(options: argparse.Namespace, folder: Path) -> int:
    dashboards = read()
    async with (
        watched_mesh.running(folder, options.model, options.draft) as mesh,
        prometheus.running(folder, mesh.targets) as server,
    ):
        fired = await faults.make(mesh, server, options.quiet_s)
        queries = await answers.silent_queries(server, dashboards)
        rules = await answers.silent_rules(server)
        unseen, still = await movement.of_all(server)
        if options.pictures:
            await pictures.draw(server, dashboards, options.pictures)
    for alert, seconds in fired.items():
        print(f"{alert} did not fire" if math.isinf(seconds) else f"{alert} fired after {seconds:.0f} s")
    failures = [alert for alert, seconds in fired.items() if math.isinf(seconds)]
    for silent in (*queries, *rules):
        print(f"answers nothing: {silent}")
        failures += [] if "(needs " in silent else [silent]
    print(f"never moved: {', '.join(still) or 'no metric'}")
    print(f"not shown by any process: {', '.join(unseen) or 'no metric'}")
    return int(bool(failures or unseen))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m outrider.loadtest.observe", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("dashboards", help="write the JSON of all dashboards")
    check = commands.add_parser("check", help="try all queries and rules on a real mesh")
    check.add_argument("--quiet-s", type=float, default=90.0, help="seconds of load before the first fault")
    check.add_argument("--pictures", type=Path, metavar="DIR", help="draw the dashboards into DIR")
    add_models(check)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
