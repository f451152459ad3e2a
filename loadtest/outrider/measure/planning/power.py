"""Power while a load runs: that of GPUs as verifiers show it, else that of the packages of CPUs as Linux counts it."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from outrider.measure.planning.scrape import Snapshot

RAPL = Path("/sys/class/powercap")
_EVERY_S = 1.0


class Meter:
    """Means over all loads that are watched. RAPL's counter wraps, so a negative difference counts as nothing."""

    def __init__(self) -> None:
        self._gpu: list[float] = []
        self._joules = self._seconds = 0.0

    @property
    def watts(self) -> float | None:
        """Mean power; None where neither NVML nor RAPL tells it."""
        if self._gpu:
            return sum(self._gpu) / len(self._gpu)
        return self._joules / self._seconds if self._joules and self._seconds else None

    async def watch(self, load: asyncio.Task[Any], snapshot: Callable[[], Awaitable[Snapshot]]) -> None:
        """Reads the power every second until ``load`` ends."""
        began, joules = time.monotonic(), package_joules()
        while not (await asyncio.wait({load}, timeout=_EVERY_S))[0]:
            watts = (await snapshot()).total("verifier", "gpu_power_watts")
            self._gpu += [watts] if watts and not math.isnan(watts) else []
        if joules is not None and (after := package_joules()) is not None:
            self._joules += max(after - joules, 0.0)
            self._seconds += time.monotonic() - began


def package_joules() -> float | None:
    """Joules that all packages of this machine have used since some moment; None where they cannot be read."""
    try:
        counters = [int((zone / "energy_uj").read_text()) for zone in RAPL.glob("intel-rapl:?")]
    except OSError:
        return None
    return sum(counters) / 1e6 if counters else None
