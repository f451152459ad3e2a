"""Collects wheels that a machine with only PyTorch and its friends lacks: `python -m gpu_proof.pack`.

The wheels are for CPython 3.12 on x86-64 Linux, in the versions of constraints.txt, without torch, Triton and what
depends on their versions. They are written to a folder that git ignores.
"""

from __future__ import annotations

import shutil
import subprocess
import sys

from gpu_proof.machine import PACK, ROOT

PACKAGES = (
    "cffi",
    "google-crc32c",
    "grpcio",
    "hypothesis",
    "iniconfig",
    "llguidance",
    "msgspec",
    "opentelemetry-api",
    "opentelemetry-exporter-http-transport",
    "opentelemetry-exporter-otlp-common",
    "opentelemetry-exporter-otlp-proto-common",
    "opentelemetry-exporter-otlp-proto-http",
    "opentelemetry-proto",
    "opentelemetry-sdk",
    "opentelemetry-semantic-conventions",
    "pluggy",
    "prometheus_client",
    "protobuf",
    "pycparser",
    "pytest",
    "pytest-asyncio",
    "pytest-timeout",
    "pytest-xdist",
    "execnet",
    "sortedcontainers",
    "structlog",
)
"""What Outrider's engine and its tests import, and the tools of the tests."""
MOST_BYTES = 38 << 20
"""Room for wheels beside the repository, where 64 MiB can be copied."""
_PLATFORMS = (*(f"manylinux_2_{version}" for version in range(36, 4, -1)), "manylinux2014", "manylinux1")
"""Those of the machine's C library and older ones; pip takes each by its name alone."""


def main() -> int:
    """Collects the wheels anew; the exit code is 1 where one is missing or all are too large."""
    versions = pinned()
    if missing := [name for name in PACKAGES if name.lower() not in versions]:
        print(f"error: constraints.txt does not pin {', '.join(missing)}", file=sys.stderr)
        return 1
    shutil.rmtree(PACK, ignore_errors=True)
    command = [sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-deps"]
    command += ["--only-binary=:all:", "--python-version", "3.12", "--implementation", "cp"]
    for platform in _PLATFORMS:
        command += ["--platform", f"{platform}_x86_64"]
    wanted = [f"{name}=={versions[name.lower()]}" for name in PACKAGES]
    downloaded = subprocess.run([*command, "-d", str(PACK), *wanted], check=False)
    if downloaded.returncode:
        return 1
    size = sum(wheel.stat().st_size for wheel in PACK.glob("*.whl"))
    print(f"{len(wanted)} wheels, {size / 2**20:.1f} MiB, in {PACK.relative_to(ROOT)}")
    if size > MOST_BYTES:
        print(f"error: they must be at most {MOST_BYTES >> 20} MiB", file=sys.stderr)
        return 1
    return 0


def pinned() -> dict[str, str]:
    """Versions of constraints.txt by name in small letters."""
    lines = (line.partition("#")[0].strip() for line in (ROOT / "constraints.txt").read_text().splitlines())
    return {name.lower(): version for name, _, version in (line.partition("==") for line in lines) if version}


if __name__ == "__main__":
    sys.exit(main())
