"""The cost of a request in front of the engine: `python -m outrider.loadtest overhead`.

Requests go to an engine that answers at once: directly, through Outrider (NATS, a tokenizer, a gateway) and through
LiteLLM's proxy, in turns in one run. CPU is that of all processes in front of the engine; "per core" is per CPU second.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import httpx
import msgspec
from outrider.loadtest import thresholds
from outrider.loadtest.load.repeated_request import RepeatedRequest, RepeatedResult, send_repeatedly
from outrider.loadtest.meshes import litellm_process
from outrider.loadtest.thresholds import Threshold
from outrider.mesh.addresses import hold_port

TIMES, ADDED_MS, SHARE = 20.0, 2.0, 0.25
"""Thresholds: ratio to LiteLLM's throughput, milliseconds added to the engine's p50, share of its throughput."""
_MODEL = "pocket"
_READY_S = 60.0
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


class Target(msgspec.Struct, frozen=True):
    """A server to load, and the processes in front of the engine, by name."""

    name: str
    url: str
    processes: dict[str, int]
    headers: dict[str, str] = {}


class Measurement(msgspec.Struct, frozen=True):
    """One load on one target: requests and events a second, latencies, and CPU milliseconds a request by process."""

    target: str
    load: str
    repeat: int
    requests_per_s: float
    events_per_s: float
    p50_ms: float
    p99_ms: float
    cpu_ms: dict[str, float]
    events: float

    @property
    def requests_per_core(self) -> float:
        """Requests for each second of CPU in front of the engine."""
        total = sum(self.cpu_ms.values())
        return 1e3 / total if total else float("nan")

    def __str__(self) -> str:
        cpu = ", ".join(f"{name} {value:.2f}" for name, value in self.cpu_ms.items())
        return (
            f"{self.repeat + 1}: {self.load}, {self.target}: {self.requests_per_s:.0f} req/s, "
            f"{self.events_per_s:.0f} events/s, p50 {self.p50_ms:.2f} ms, p99 {self.p99_ms:.2f} ms; "
            f"CPU ms a request: {cpu or '-'}"
        )


@contextlib.contextmanager
def services(directory: Path, gateways: int = 1) -> Iterator[tuple[Target, Target]]:
    """Runs the engine and Outrider, with ``gateways`` on one port, inside the block; logs go to ``directory``.

    Raises:
        SystemExit: a service did not become ready.
    """
    with contextlib.ExitStack() as stack:

        def start(name: str, *command: object) -> int:
            log = stack.enter_context((directory / f"{name}.log").open("wb"))
            process = subprocess.Popen([str(part) for part in command], stdout=log, stderr=log)
            stack.callback(_stop, process)
            return process.pid

        nats, http, gateway = hold_port(), hold_port(), hold_port()
        url = f"--nats-url=nats://127.0.0.1:{nats}"
        server = Path(sys.executable).parent / "nats-server"
        processes = {
            "nats": start("nats", server, "-a", "127.0.0.1", "-p", nats, "-js", "-sd", directory / "nats"),
            "tokenizer": start("tokenizer", sys.executable, "-m", "outrider.tokenizer", url),
        }
        for number in range(gateways):
            name = f"gateway-{number + 1}" if gateways > 1 else "gateway"
            shared = (f"--port={gateway}", "--share-port=true", f"--instance={name}")
            processes[name] = start(name, sys.executable, "-m", "outrider.gateway", url, *shared)
        start("echo", sys.executable, "-m", "outrider.loadtest.load.echo", url, f"--http-port={http}")
        bare = Target("engine", f"http://127.0.0.1:{http}", {})
        ours = Target("Outrider", f"http://127.0.0.1:{gateway}", processes)
        _wait(f"{bare.url}/v1/models")
        _wait(f"{ours.url}/readyz")
        yield bare, ours


def measure(target: Target, load: str, seconds: float, connections: int, repeat: int, rate: float = 0.0) -> Measurement:
    """Loads ``target`` with short answers, streams, or short answers at a ``rate``."""
    streams = load == "streams"
    task = RepeatedRequest(
        f"{target.url}/v1/chat/completions",
        [msgspec.Raw(msgspec.json.encode(_body(streams)))],
        seconds,
        connections,
        target.headers,
        rate,
    )
    cpu_before = {name: _cpu_s(pid) for name, pid in target.processes.items()}
    result = send_repeatedly(task)
    cpu = {name: (_cpu_s(pid) - cpu_before[name]) * 1e3 for name, pid in target.processes.items()}
    return _measurement(target, load, repeat, result, cpu)


def _measurement(
    target: Target, load: str, repeat: int, result: RepeatedResult, cpu: Mapping[str, float]
) -> Measurement:
    count = len(result.latencies)
    return Measurement(
        target.name,
        load,
        repeat,
        result.rate,
        result.events / result.seconds,
        result.quantile(0.5) * 1e3,
        result.quantile(0.99) * 1e3,
        {name: value / count for name, value in cpu.items()},
        result.events / count,
    )


def _body(streams: bool) -> dict[str, object]:
    messages = [{"role": "user", "content": "Say echo."}]
    return {"model": _MODEL, "messages": messages, "max_tokens": 64 if streams else 4, "stream": streams}


def judge(results: list[Measurement]) -> list[Threshold]:
    """Thresholds on medians; a load that was not measured gives NaN."""

    def median_of(target: str, load: str, value: Callable[[Measurement], float]) -> float:
        values = [value(result) for result in results if (result.target, result.load) == (target, load)]
        return statistics.median(values) if values else float("nan")

    def events(result: Measurement) -> float:
        return result.requests_per_core * result.events

    def requests(result: Measurement) -> float:
        return result.requests_per_s

    def core(result: Measurement) -> float:
        return result.requests_per_core

    def p50(result: Measurement) -> float:
        return result.p50_ms

    added = median_of("Outrider", "half", p50) - median_of("engine", "half", p50)
    return [
        Threshold(
            "req/s a core, times LiteLLM's",
            median_of("Outrider", "short", core) / median_of("LiteLLM", "short", core),
            TIMES,
        ),
        Threshold(
            "events/s a core, times LiteLLM's",
            median_of("Outrider", "streams", events) / median_of("LiteLLM", "streams", events),
            TIMES,
        ),
        Threshold(
            "req/s, part of the bare engine's",
            median_of("Outrider", "short", requests) / median_of("engine", "short", requests),
            SHARE,
        ),
        Threshold(f"{ADDED_MS:g} ms over the p50 added at half load", ADDED_MS / added, 1.0),
    ]


def _wait(url: str) -> None:
    until = time.monotonic() + _READY_S
    while time.monotonic() < until:
        with contextlib.suppress(httpx.TransportError):
            if httpx.get(url, trust_env=False).is_success:
                return
        time.sleep(0.1)
    raise SystemExit(f"nothing answers on {url}")


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _cpu_s(pid: int) -> float:
    """Seconds of CPU that a process has used, without its ended children."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * _TICK_S


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m outrider.loadtest overhead", description=__doc__)
    parser.add_argument(
        "--litellm", type=Path, metavar="VENV", help="virtual environment of LiteLLM; left out without it"
    )
    parser.add_argument("--install-litellm", action="store_true", help="create the environment if it is missing")
    parser.add_argument("--connections", type=int, default=16, help="concurrent connections")
    parser.add_argument("--gateways", type=int, default=1, help="gateways on one port")
    parser.add_argument("--seconds", type=float, default=5.0, help="seconds a load")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path, help="JSON file for the figures")
    options = parser.parse_args()
    if min(options.connections, options.repeats, options.gateways) < 1 or options.seconds <= 0:
        parser.error("numbers must be above 0")
    if options.install_litellm and not options.litellm:
        parser.error("--install-litellm needs --litellm VENV, the directory to create")
    return options


@contextlib.contextmanager
def _targets(options: argparse.Namespace, directory: Path) -> Iterator[list[Target]]:
    with contextlib.ExitStack() as stack:
        bare, ours = stack.enter_context(services(directory, options.gateways))
        targets = [bare, ours]
        if options.litellm:
            running = litellm_process.running(options.litellm, directory, _MODEL, bare.url, hold_port())
            peer = stack.enter_context(running)
            headers = {"authorization": f"Bearer {peer.key}"}
            targets.append(Target("LiteLLM", peer.url, {"litellm": peer.pid}, headers))
        yield targets


def _rounds(options: argparse.Namespace, targets: list[Target]) -> Iterator[Measurement]:
    """Every load on every target in turns; repeat -1 is a warm-up."""
    for repeat in range(-1, options.repeats):
        fastest = 0.0
        for load in ("streams", "short"):
            for target in targets if repeat % 2 == 0 else targets[::-1]:
                result = measure(target, load, options.seconds, options.connections, repeat)
                fastest = result.requests_per_s if (target.name, load) == ("Outrider", "short") else fastest
                yield result
        for target in targets[:2]:
            yield measure(target, "half", options.seconds, 4 * options.connections, repeat, fastest / 2)


def main() -> int:
    """Measures, prints a line a measurement and the thresholds, writes JSON."""
    options = _options()
    if options.install_litellm and not (options.litellm / "bin" / "litellm").exists():
        litellm_process.install(options.litellm)
    results: list[Measurement] = []
    with tempfile.TemporaryDirectory(prefix="outrider-") as directory, _targets(options, Path(directory)) as targets:
        for result in _rounds(options, targets):
            if result.repeat >= 0:
                print(result, flush=True)
                results.append(result)
    version = litellm_process.version(options.litellm) if options.litellm else ""
    thresholds.publish(options.out, judge(results), options=vars(options), litellm=version, measured=results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
