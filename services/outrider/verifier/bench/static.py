"""A verifier with static batching, to compare with.

`python -m outrider.verifier.bench.static` starts the verifier. It admits a batch only when the batch before is
done, as servers did before continuous batching (Yu et al. 2022, "Orca", OSDI).
Flags are those of `python -m outrider.verifier`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from outrider.engine.pages.page_table import PageTable
from outrider.engine.scheduling.plan import Limits
from outrider.engine.scheduling.scheduler import Scheduler
from outrider.engine.target import Parts
from outrider.mesh.service import run
from outrider.verifier.service import VerifierService


def batches(limits: Limits, pages: PageTable, salt: bytes) -> Scheduler:
    """A scheduler that admits requests in batches."""
    return Scheduler(replace(limits, static=True), pages, salt)


class StaticBatching(VerifierService):
    """Admits requests in batches."""

    parts: ClassVar[Parts] = Parts(scheduler=batches)


if __name__ == "__main__":
    run(StaticBatching)
