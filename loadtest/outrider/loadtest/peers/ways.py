"""Ways of running engines, which take turns on the same requests."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Generic

from outrider.loadtest.load.turns import R, RunTurn

OUTRIDER, OPENVINO, LLAMA = "Outrider", "OpenVINO", "llama.cpp"


@dataclass
class Engines(Generic[R]):
    """The engines that were started, and their description for a report.

    Attributes:
        ways: function that runs a turn, by mode.
        missing: engines and ways that are left out, with the reason.
        versions: packages of the peers, ``name==version``.
        formats: OpenVINO's weight format by model.
    """

    ways: dict[str, RunTurn[R]] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    versions: list[str] = field(default_factory=list)
    formats: dict[str, str] = field(default_factory=dict)

    def report_fields(self) -> dict[str, Any]:
        """The description for a report, by name."""
        return {"missing": self.missing, "versions": self.versions, "formats": self.formats}


def mode(engine: str, way: str) -> str:
    """Name of a way of an engine."""
    return f"{engine} {way}"
