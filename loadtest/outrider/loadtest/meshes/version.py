"""A service of another version of Outrider: ``outrider up --program KIND=outrider.loadtest.meshes.version``.

The environment variable ``LOADTEST_OTHER_VERSION`` names a link. While the link exists, a new process runs the version
that is installed in the directory to which the link points (``pip install --target``); else the present version.
``LOADTEST_WITHOUT`` lists settings that the other version does not know, and whose flags it does not get.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

LINK = "LOADTEST_OTHER_VERSION"
WITHOUT = "LOADTEST_WITHOUT"
_INSTANCE = "--instance"


def main() -> None:
    """Becomes the service of the kind that the flag ``--instance`` begins with."""
    arguments = sys.argv[1:]
    kind = arguments[arguments.index(_INSTANCE) + 1].rpartition("-")[0]
    tree = Path(os.environ[LINK])
    environment = dict(os.environ)
    if tree.exists():
        environment["PYTHONPATH"] = str(tree.resolve())
        unknown = {f"--{key}" for key in os.environ[WITHOUT].split()}
        arguments = [argument for argument in arguments if argument.partition("=")[0] not in unknown]
    os.execve(sys.executable, [sys.executable, "-m", f"outrider.{kind}", *arguments], environment)


if __name__ == "__main__":
    main()
