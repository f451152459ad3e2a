"""Asks whether packages of the images have known vulnerabilities; `make audit` runs this."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
LOCKS = ("gateway", "tokenizer", "kvcache", "engine", "torch-cuda", "build")
"""CPU builds of torch are not on PyPI; the CUDA build of the same version stands for them."""
_UNREACHABLE = re.compile(r"ConnectionError|ConnectTimeout|failed to connect", re.IGNORECASE)


def main() -> int:
    """Prints vulnerabilities; 1 if there are any, 0 if there are none or if no service answers."""
    command = [str(Path(sys.executable).parent / "pip-audit"), "--require-hashes", "--disable-pip", "--format", "json"]
    command += [part for lock in LOCKS for part in ("-r", str(HERE / f"{lock}.txt"))]
    done = subprocess.run([*command, "--progress-spinner", "off"], capture_output=True, text=True)
    if done.stdout:
        return report(json.loads(done.stdout)["dependencies"])
    if _UNREACHABLE.search(done.stderr):
        print("Nothing is audited: the service of vulnerabilities cannot be reached.")
        return 0
    print(done.stderr, file=sys.stderr)
    return 1


def report(packages: list[dict[str, Any]]) -> int:
    """Prints what an answer says of ``packages``; an index without data of vulnerabilities knows none of them."""
    asked = {package["name"]: package for package in packages if "skip_reason" not in package}
    if not asked:
        print("Nothing is audited: the package index here has no data of vulnerabilities.")
        return 0
    for name in sorted({package["name"] for package in packages if "skip_reason" in package}):
        print(f"{name} is not audited: the service does not know the package.")
    found = {(each["name"], each["version"], hole["id"]) for each in asked.values() for hole in each["vulns"]}
    for name, version, hole in sorted(found):
        print(f"{name} {version} has {hole}.")
    print(f"{len(asked)} packages are audited, {len(found)} vulnerabilities are known.")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
