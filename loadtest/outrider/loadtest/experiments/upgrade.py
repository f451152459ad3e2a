"""A rolling restart of every service under load: `python -m outrider.loadtest upgrade`.

Readers stream seeded completions from `outrider up`, one after another, while SIGHUP has it replace every service. Each
answer is compared with that of the undisturbed mesh. With ``--other DIR``, a directory into which another version of
Outrider was installed, the mesh begins with processes of that version and is restarted twice: to the present version,
and back. In between, both versions serve side by side.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
from outrider.loadtest.attack.reader import StreamRecord, client, read
from outrider.loadtest.attack.victims import compare
from outrider.loadtest.meshes.version import LINK, WITHOUT
from outrider.measure import local_mesh
from outrider.measure.load import prompts
from outrider.measure.local_mesh import LocalMesh

KINDS = ("gateway", "tokenizer", "proposer", "verifier", "kvcache")
_SETTINGS = {"gateway.drain_s": "1"}
_GONE = re.compile(r"(\S+) was gone (\d+\.\d) s after SIGTERM")
_ENDED = re.compile(r"All services are new|The restart ends here[^\n]*")
_RESTART_S = 900.0


MOST_GONE_S = 5.0
MOST_GAP_S = 1.0
"""Most seconds between SIGTERM and the end of a process, and in the median stream between two tokens."""


class Restart(msgspec.Struct, frozen=True):
    """What a restart of all services did.

    Attributes:
        gone_s: for each process that was replaced, the seconds from SIGTERM to its end.
        gaps_s: for each stream that ran meanwhile, its longest time between two tokens.
        undisturbed_s: the same for the streams before, without a restart.
        whole: whether every service was replaced.
    """

    name: str
    streams: int
    lost: int
    altered: int
    gone_s: dict[str, float]
    gaps_s: list[float]
    undisturbed_s: list[float]
    whole: bool
    why: list[str]

    @property
    def passed(self) -> bool:
        """Whether no stream was lost or altered, and processes and gaps were as short as promised."""
        kept = self.whole and self.streams > 0 and not self.lost and not self.altered
        return kept and max(self.gone_s.values()) <= MOST_GONE_S and statistics.median(self.gaps_s) <= MOST_GAP_S

    def __str__(self) -> str:
        """A few lines for the terminal."""
        gone = ", ".join(f"{name} {seconds:g}" for name, seconds in self.gone_s.items())
        lines = [
            f"{self.name}: {self.streams} streams, {self.lost} lost, {self.altered} altered",
            f"  longest gap of a stream: {_spread(self.gaps_s)}; undisturbed: {_spread(self.undisturbed_s)}",
            f"  seconds from SIGTERM to the end: {gone}",
            *([] if self.whole else ["  the restart ended early"]),
            *(f"  {why}" for why in self.why),
        ]
        return "\n".join(lines)


def _spread(seconds: Sequence[float]) -> str:
    return f"{statistics.median(seconds):.2f} s at the median, {max(seconds):.2f} s at most" if seconds else "none"


def longest_gap(record: StreamRecord) -> float:
    """The longest time between two arrivals of tokens, in seconds; 0 with fewer than two."""
    times = [arrival for arrival, _ in record.arrivals]
    return max((after - before for before, after in pairwise(times)), default=0.0)


class Versions:
    """Whether new processes run the present version, or the ``other`` one to which ``link`` then points."""

    def __init__(self, link: Path, other: Path | None) -> None:
        self._link, self._other = link, other

    def use_other(self) -> None:
        """Has new processes run the other version."""
        assert self._other is not None
        self._link.symlink_to(self._other.resolve())

    def use_present(self) -> None:
        """Has new processes run the present version."""
        self._link.unlink()


class Readers:
    """Streams over and over until `stop` is set, and compares each answer with the expected one."""

    def __init__(self, url: str, bodies: Sequence[dict[str, Any]]) -> None:
        self._url, self._bodies = url, bodies
        self._expected: list[list[Any]] = []
        self.records: list[StreamRecord] = []
        self.undisturbed_s: list[float] = []
        self.stop = asyncio.Event()

    async def learn(self) -> None:
        """Reads every answer once from the undisturbed mesh; `RuntimeError` if one is missing."""
        async with client() as http:
            records = await asyncio.gather(*(self._read(http, number) for number in range(len(self._bodies))))
        if wrong := [record for record in records if record.outcome != "whole"]:
            raise RuntimeError(f"an undisturbed stream was {wrong[0].outcome}: {wrong[0].why}")
        self._expected = [record.answer for record in records]
        self.undisturbed_s = [longest_gap(record) for record in records]

    async def run(self) -> None:
        """Reads all answers at once; whoever has one reads it again."""
        async with client() as http:
            await asyncio.gather(*(self._repeat(http, number) for number in range(len(self._bodies))))

    async def _repeat(self, http: Any, number: int) -> None:
        while not self.stop.is_set():
            self.records.append(compare(await self._read(http, number), self._expected[number]))

    async def _read(self, http: Any, number: int) -> StreamRecord:
        return await read(http, [self._url], "unused", self._bodies[number], number)


def main() -> int:
    """Restarts all services under load, prints what it did, and exits with 1 if a stream or a promise was broken."""
    options = _options()
    counts: dict[str, Any] = {"verifiers": 2, "proposers": 1, "kvcaches": 1, "model": options.model}
    with tempfile.TemporaryDirectory(prefix="outrider-") as folder:
        versions = Versions(Path(folder) / "other", options.other)
        more = ["--gateways", "2"]
        if options.other is not None:
            os.environ |= {LINK: str(Path(folder) / "other"), WITHOUT: " ".join(options.without)}
            versions.use_other()
            more += [part for kind in KINDS for part in ("--program", f"{kind}=outrider.loadtest.meshes.version")]
        settings = _SETTINGS | dict(text.split("=", 1) for text in options.set)
        with local_mesh.running(settings, more=more, **counts) as mesh:
            restarts = asyncio.run(_measure(mesh, options, versions))
    for restart in restarts:
        print(restart)
    return 0 if all(restart.passed for restart in restarts) else 1


async def _measure(mesh: LocalMesh, options: argparse.Namespace, versions: Versions) -> list[Restart]:
    readers = Readers(mesh.url, _bodies(options.streams, options.max_tokens))
    await readers.learn()
    if options.other is None:
        return [await _restart(mesh, readers, "all services anew")]
    versions.use_present()
    there = await _restart(mesh, readers, "to the present version")
    versions.use_other()
    return [there, await _restart(mesh, readers, "back to the other version")]


async def _restart(mesh: LocalMesh, readers: Readers, name: str) -> Restart:
    """Restarts all services while ``readers`` read."""
    readers.records, readers.stop = [], asyncio.Event()
    reading, before = asyncio.create_task(readers.run()), len(mesh.output())
    mesh.restart()
    output, ended = await asyncio.to_thread(_wait, mesh, before)
    readers.stop.set()
    await reading
    gone_s = {process: float(seconds) for process, seconds in _GONE.findall(output)}
    return _judge(name, readers, gone_s, ended)


def _wait(mesh: LocalMesh, before: int) -> tuple[str, str]:
    """What `outrider up` prints behind the first ``before`` characters until a restart has ended, and how it ended."""
    until = time.monotonic() + _RESTART_S
    while (ended := _ENDED.search(output := mesh.output()[before:])) is None:
        if time.monotonic() > until:
            raise TimeoutError(f"the restart did not end within {_RESTART_S:g} s: {output}")
        time.sleep(0.2)
    return output, ended[0]


def _judge(name: str, readers: Readers, gone_s: Mapping[str, float], ended: str) -> Restart:
    records = readers.records
    counts = {outcome: sum(record.outcome == outcome for record in records) for outcome in ("whole", "altered")}
    whole = ended.startswith("All")
    return Restart(
        name=name,
        streams=len(records),
        lost=len(records) - sum(counts.values()),
        altered=counts["altered"],
        gone_s=dict(gone_s),
        gaps_s=[longest_gap(record) for record in records],
        undisturbed_s=readers.undisturbed_s,
        whole=whole,
        why=[*([] if whole else [ended]), *(record.why for record in records if record.why)],
    )


def _bodies(count: int, max_tokens: int) -> list[dict[str, Any]]:
    """Requests with seeds, which fix the answers; half of them are greedy."""
    texts = prompts.held_out(300)
    return [
        {
            "prompt": texts[number % len(texts)],
            "max_tokens": max_tokens,
            "temperature": float(number % 2),
            "seed": number,
            "ignore_eos": True,
        }
        for number in range(count)
    ]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m outrider.loadtest upgrade", description=__doc__)
    parser.add_argument("--streams", type=int, default=32, help="streams at once")
    parser.add_argument("--max-tokens", type=int, default=1000, help="tokens of each")
    parser.add_argument("--model", type=Path, metavar="DIR", help="a Hugging Face directory; else the shipped target")
    parser.add_argument("--other", type=Path, metavar="DIR", help="where another version of Outrider is installed")
    parser.add_argument(
        "--without", action="append", default=[], metavar="KEY", help="a setting that the other version does not know"
    )
    parser.add_argument("--set", action="append", default=[], metavar="SERVICE.KEY=VALUE", help="settings of the mesh")
    options = parser.parse_args()
    if min(options.streams, options.max_tokens) < 1:
        parser.error("numbers must be at least 1")
    return options


if __name__ == "__main__":
    sys.exit(main())
