"""Options of `outrider up`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

ONE_EACH: Mapping[str, int] = {"gateway": 1, "verifier": 1, "tokenizer": 1, "kvcache": 0}


@dataclass(frozen=True)
class UpOptions:
    """Options of `outrider up`. None leaves a value to the configuration file, the environment or the default.

    Attributes:
        counts: processes by kind, without proposers.
        prefills: further verifiers, which compute prompts for the verifiers in ``counts``.
        proposers: proposer processes; None leaves it to `outrider.cli.processes.placement`.
        aliases: further names by which requests may ask for the model.
        secure: everything is encrypted, and clients need keys.
        programs: ``KIND=MODULE``: the module that processes of a kind run, in place of ``outrider.KIND``.
    """

    host: str | None = None
    port: int | None = None
    model: str | None = None
    aliases: list[str] = field(default_factory=list)
    draft: str | None = None
    counts: Mapping[str, int] = field(default_factory=lambda: ONE_EACH)
    prefills: int = 0
    proposers: int | None = None
    nats_url: str | None = None
    nats_store: Path | None = None
    config: Path | None = None
    sets: list[str] = field(default_factory=list)
    programs: list[str] = field(default_factory=list)
    log_dir: Path | None = None
    secure: bool = False
    verbose: bool = False
