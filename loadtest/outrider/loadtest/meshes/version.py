"""A service of another version of Outrider: ``outrider up --program KIND=outrider.loadtest.meshes.version``.

The environment variable ``LOADTEST_OTHER_VERSION`` names a link. While the link exists, a new process runs the version
that is installed in the directory to which the link points (``pip install --target``); else the present version.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

LINK = "LOADTEST_OTHER_VERSION"
_INSTANCE = "--instance"


def main() -> None:
    """Becomes the service of the kind that the flag ``--instance`` begins with."""
    arguments = sys.argv[1:]
    kind = arguments[arguments.index(_INSTANCE) + 1].rpartition("-")[0]
    tree = Path(os.environ[LINK])
    path = {"PYTHONPATH": str(tree.resolve())} if tree.exists() else {}
    os.execve(sys.executable, [sys.executable, "-m", f"outrider.{kind}", *arguments], {**os.environ, **path})


if __name__ == "__main__":
    main()
