"""New lines of the logs in a directory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from outrider.mesh.errors import ConfigError


class LogLines:
    """The lines of all logs in ``directory``, or of those of ``service``: a kind, or a log's name without its ending.

    Raises:
        ConfigError: no log is of ``service``.
    """

    def __init__(self, directory: Path, service: str = "") -> None:
        self._directory, self._service = directory, service
        self._offsets: dict[str, int] = {}
        if service and not self.names:
            there = sorted({path.stem.partition("-")[0] for path in directory.glob("*.log")})
            raise ConfigError(f"there is no log of {service}: there are {', '.join(there) or 'none'} in {directory}")

    @property
    def names(self) -> list[str]:
        """Names of the logs that there are now."""
        stems = (path.stem for path in self._directory.glob("*.log"))
        return sorted(stem for stem in stems if self._service in ("", stem, stem.partition("-")[0]))

    def new(self) -> Iterator[tuple[str, str]]:
        """Name of the log and text of each whole line that was written since the last call."""
        for name in self.names:
            with (self._directory / f"{name}.log").open("rb") as log:
                log.seek(self._offsets.get(name, 0))
                *lines, rest = log.read().split(b"\n")
                self._offsets[name] = log.tell() - len(rest)
            for line in lines:
                yield name, line.decode("utf-8", "replace")
