"""A verifier that asks every drafter at every step, whether that pays or not, to measure with.

`python -m outrider.benches.verifier.always` starts the verifier. Flags are those of `python -m outrider.verifier`.
"""

from __future__ import annotations

from typing import ClassVar

from outrider.engine.speculation.policy.drafter_policy import AskAlways
from outrider.engine.target import Parts
from outrider.mesh.service import run
from outrider.verifier.service import VerifierService


class AlwaysAsking(VerifierService):
    """Asks every drafter at every step, for every sequence."""

    parts: ClassVar[Parts] = Parts(policy=AskAlways)


if __name__ == "__main__":
    run(AlwaysAsking)
