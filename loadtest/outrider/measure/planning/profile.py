"""A profile: what a measured mesh costs, as a file."""

from __future__ import annotations

from bisect import bisect_left
from pathlib import Path
from typing import Any

import msgspec

FORMAT = "outrider.profile.v1"


class ProfileError(ValueError):
    """A file is no profile, or a mesh gives none; the message is one sentence for the user."""


class StepPoint(msgspec.Struct, frozen=True):
    """Mean step of a load without the time of prompts.

    Attributes:
        running: sequences that decode in a step.
        rows: rows of each of them, its guesses included.
        seconds: time of a step.
        tokens: tokens that a step adds to each of them (acceptance length); 1 without speculation.
    """

    running: float
    rows: float
    seconds: float
    tokens: float


class PromptCost(msgspec.Struct, frozen=True):
    """What prompts add to steps.

    Attributes:
        step_s: seconds of a step with prompts only, without their rows.
        row_s: mean seconds that a row of a prompt adds.
        curve: rows, and the seconds that they take of a step; ascending. The first rows of a step cost nearly nothing,
            as long as the weights take longer to read than to use. Without it, each row adds ``row_s``.
    """

    step_s: float
    row_s: float
    curve: list[tuple[float, float]] = []

    def seconds(self, beside: float, rows: float) -> float:
        """Seconds that ``rows`` of prompts add to a step of ``beside`` other rows."""
        if not self.curve:
            return rows * self.row_s
        return self.step(beside + rows) - self.step(beside)

    def step(self, rows: float) -> float:
        """Seconds of a step by the curve: on the line between two points, in proportion beyond the last one."""
        curve = self.curve
        place = bisect_left(curve, rows, key=lambda point: point[0])
        if place == 0:
            return curve[0][1]
        if place == len(curve):
            return curve[-1][1] * rows / curve[-1][0]
        (low, low_s), (high, high_s) = curve[place - 1], curve[place]
        return low_s + (high_s - low_s) * (rows - low) / (high - low)


class Cpu(msgspec.Struct, frozen=True):
    """CPU seconds of a service for each request and for each token of an answer."""

    request_s: float = 0.0
    token_s: float = 0.0


class Limits(msgspec.Struct, frozen=True):
    """Limits of a verifier, as its settings of these names; ``pages`` is the number that it has."""

    max_running: int
    max_waiting: int
    prefill_rows: int
    max_rows: int
    pages: int
    page_size: int


class Profile(msgspec.Struct, frozen=True):
    """What a plan needs of a mesh.

    Attributes:
        machine: names of CPU and versions.
        settings: how it was measured.
        plain, speculative: steps by load, without and with speculation.
        cpu: CPU seconds by kind of service; a kind is absent where no process told its CPU time.
        overhead_s: seconds of a first token that no service's queue, CPU time or step explains.
        lengths: tokens of prompt and answer of each measured request.
        computed: share of the prompts' tokens that were not found in pages.
        parts: seconds of steps by part, for each load.
        memory_bytes: resident memory of all processes of a kind.
        watts: power of GPUs or packages while loaded, for each verifier; None where nothing told it.
    """

    format: str
    machine: dict[str, str]
    model: str
    settings: dict[str, Any]
    limits: Limits
    plain: list[StepPoint]
    speculative: list[StepPoint]
    prompt: PromptCost
    cpu: dict[str, Cpu]
    overhead_s: float
    lengths: list[tuple[int, int]]
    computed: float
    parts: dict[str, dict[str, float]]
    memory_bytes: dict[str, float]
    watts: float | None = None

    def save(self, path: Path) -> None:
        """Writes the profile as JSON."""
        path.write_bytes(msgspec.json.format(msgspec.json.encode(self)) + b"\n")


def read(path: Path) -> Profile:
    """The profile in a file.

    Raises:
        ProfileError: there is none.
    """
    try:
        profile = msgspec.json.decode(path.read_bytes(), type=Profile)
    except (OSError, msgspec.DecodeError) as error:
        raise ProfileError(f"cannot read a profile from {path}: {error}") from error
    if profile.format != FORMAT:
        raise ProfileError(f"{path} has the format {profile.format!r}, not {FORMAT!r}")
    return profile
