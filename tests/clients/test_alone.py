"""The client, installed without the rest of Outrider."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

PROJECT = Path(__file__).parents[2] / "clients" / "python"

_ALONE = """
import importlib
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in sys.argv[2].split(","):
            raise ImportError(name)

sys.meta_path.insert(0, Blocked())
sys.path.insert(0, sys.argv[1])
import outrider_client
for name in outrider_client.__all__:
    getattr(outrider_client, name)
for extra in sys.argv[3:]:
    importlib.import_module(f"outrider_client.{extra}")
print(outrider_client.__file__)
"""


def test_the_wheel_holds_the_client_and_imports_without_the_rest(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path]
    subprocess.run(build, cwd=PROJECT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        assert {name.split("/")[0].split("-")[0] for name in archive.namelist()} == {"outrider_client"}
        assert "outrider_client/py.typed" in archive.namelist()
        archive.extractall(tmp_path / "site")
    for blocked, extras in (("outrider,grpc,nats,google,starlette,torch", []), ("outrider,torch", ["grpc", "nats"])):
        command = [sys.executable, "-c", _ALONE, tmp_path / "site", blocked, *extras]
        imported = subprocess.run(command, check=True, capture_output=True, text=True)
        assert imported.stdout.startswith(str(tmp_path))
