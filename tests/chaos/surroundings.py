"""What surrounds a mesh and can fail as well: packets, a gateway's clock, the broker's disk; only root may do that."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from shutil import which

_LOST_S, _AHEAD_S, _FULL_S = 5.0, 2.0, 5.0
_BREAKS = 5
_STORE_BYTES = 2 << 30
_FAKETIME = "faketime/libfaketimeMT.so.1"


class Surroundings:
    """The surroundings of a mesh whose files are in ``logs``.

    Attributes:
        client_ports: TCP ports of gateways for clients, whose packets are never lost.
        broker_port: TCP port of the broker.
        fallible: the names of the faults that can be made here.
    """

    def __init__(self, logs: Path) -> None:
        self.client_ports: Sequence[int] = ()
        self.broker_port = 0
        self._store, self._offset = logs / "nats", logs / "clock"
        libraries = [path for path in Path("/usr/lib").glob(f"*/{_FAKETIME}") if which("faketime")]
        self._faketime = libraries[0] if libraries else None
        root = os.geteuid() == 0
        if _is_own_namespace():
            _run(["ip", "link", "set", "lo", "up"])
        made = {
            "packets lost": root and _is_own_namespace() and which("nft"),
            "connections broken": root and _is_own_namespace() and which("ss"),
            "a gateway's clock": self._faketime,
            "the broker's disk": root and which("mount"),
        }
        self.fallible = tuple(name for name, possible in made.items() if possible)

    @property
    def environment(self) -> dict[str, str]:
        """What the gateway whose clock can fail has to be started with."""
        if self._faketime is None:
            return {}
        self._offset.write_text("+0\n")
        monotonic = {"DONT_FAKE_MONOTONIC": "1", "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
        file = {"FAKETIME_TIMESTAMP_FILE": str(self._offset), "FAKETIME_CACHE_DURATION": "1"}
        return {"LD_PRELOAD": str(self._faketime)} | monotonic | file

    @contextmanager
    def disk(self) -> Iterator[None]:
        """The broker's store on a disk of its own during the block, if that can be."""
        self._store.mkdir(parents=True, exist_ok=True)
        mount = ["mount", "-t", "tmpfs", "-o", f"size={_STORE_BYTES}", "tmpfs", str(self._store)]
        if "the broker's disk" not in self.fallible or subprocess.run(mount, capture_output=True).returncode:
            self.fallible = tuple(name for name in self.fallible if name != "the broker's disk")
            yield
            return
        try:
            yield
        finally:
            subprocess.run(["umount", "--lazy", str(self._store)], check=True)

    async def lose_packets(self) -> list[str]:
        """Loses all packets for five seconds, but for those of clients."""
        ports = f"{{ {', '.join(map(str, self.client_ports))} }}"
        rules = "table ip chaos { chain out { type filter hook output priority 0; policy drop; %s }; }"
        kept = f"tcp dport {ports} accept; tcp sport {ports} accept;"
        _run(["nft", rules % kept])
        try:
            await asyncio.sleep(_LOST_S)
        finally:
            _run(["nft", "delete table ip chaos"])
        return [f"all packets for {_LOST_S:g} s"]

    async def break_connections(self) -> list[str]:
        """Breaks all connections but those of clients and the broker's, again and again for a second."""
        spared = " and ".join(
            f"dport != :{port} and sport != :{port}" for port in (*self.client_ports, self.broker_port)
        )
        for _ in range(_BREAKS):
            await asyncio.to_thread(_run, ["ss", "-K", "-t", "state", "established", f"( {spared} )"])
            await asyncio.sleep(1 / _BREAKS)
        return [f"the connections between services, {_BREAKS} times in a second"]

    async def set_clock(self) -> list[str]:
        """Sets the clock of the first gateway a day ahead for some seconds."""
        self._offset.write_text("+1d\n")
        try:
            await asyncio.sleep(_AHEAD_S)
        finally:
            self._offset.write_text("+0\n")
        return [f"a gateway was a day ahead for {_AHEAD_S:g} s"]

    async def fill_disk(self) -> list[str]:
        """Fills the broker's disk for five seconds."""
        filler = self._store / "filler"
        with filler.open("wb") as file:
            for size in (1 << 24, 1 << 16, 1 << 12):
                while _extend(file.fileno(), size):
                    pass
        try:
            await asyncio.sleep(_FULL_S)
        finally:
            filler.unlink()
        return [f"the broker's disk was full for {_FULL_S:g} s"]


def _extend(file: int, size: int) -> bool:
    try:
        os.posix_fallocate(file, os.fstat(file).st_size, size)
    except OSError:
        return False
    return True


def _is_own_namespace() -> bool:
    """Whether this process has a network of its own, with the loopback device alone."""
    return {name for _, name in socket.if_nameindex()} <= {"lo"}


def _run(command: list[str]) -> None:
    subprocess.run(command, check=True, capture_output=True)
