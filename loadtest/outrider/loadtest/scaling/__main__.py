"""The pods that the chart's scalers would have asked for: ``python -m outrider.loadtest.scaling MANIFESTS``."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import httpx
from outrider.loadtest.scaling import plot, prometheus, replicas, scalers
from outrider.loadtest.scaling.prometheus import Span
from outrider.loadtest.scaling.replicas import Moment
from outrider.loadtest.scaling.scalers import Scaler


def main() -> int:
    """Prints a table for each scaler, and draws it with ``--out``; the exit code."""
    options = _options()
    end = options.end or time.time()
    span = Span(end - options.minutes * 60, end, options.step)
    try:
        found = scalers.read(options.manifests)
        moments = {each.name: _replay(each, options.prometheus, span, options.pods) for each in found}
    except (ValueError, httpx.TransportError) as error:
        print(f"scaling: {error}", file=sys.stderr)
        return 1
    for scaler in found:
        print("\n".join(table(scaler, moments[scaler.name])))
    if options.out:
        plot.save(moments, options.out)
    return 0


def table(scaler: Scaler, moments: list[Moment]) -> list[str]:
    """Lines with the time in seconds, and for each trigger its sum and the pods that it asks for."""
    names = [each.name for each in scaler.triggers]
    titles = "".join(f"{name:>12} {'asks':>5}" for name in names)
    lines = [f"{scaler.name}: {scaler.least} to {scaler.most} pods", f"{'s':>6}{titles} {'pods':>5}"]
    for moment in moments:
        values = "".join(f"{moment.sums[name]:>12.3g} {moment.asked[name]:>5}" for name in names)
        lines.append(f"{moment.at - moments[0].at:>6.0f}{values} {moment.pods:>5}")
    return lines


def _replay(scaler: Scaler, url: str, span: Span, pods: int) -> list[Moment]:
    return replicas.replay(scaler, prometheus.samples(url, scaler, span), max(pods, scaler.least))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m outrider.loadtest.scaling", description=__doc__)
    parser.add_argument("manifests", type=Path, help="the output of `helm template` with the values of the mesh")
    parser.add_argument("--prometheus", default="http://127.0.0.1:9090", help="URL of the Prometheus [%(default)s]")
    parser.add_argument("--minutes", type=float, default=30, help="how far back the table begins [%(default)s]")
    parser.add_argument("--end", type=float, help="Unix time at which it ends [now]")
    parser.add_argument("--step", type=float, default=15, help="seconds between two evaluations [%(default)s]")
    parser.add_argument("--pods", type=int, default=0, help="pods at the beginning, if over min [%(default)s]")
    parser.add_argument("--out", type=Path, help="a PNG with the same")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
