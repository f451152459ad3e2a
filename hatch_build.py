"""Compiles the C++ of `native/` when Outrider is installed, for the wheel or in place for an editable installation.

Without a C++ compiler, and on other machines than x86-64 and ARM64, the wheel is one of Python alone.
"""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class NativeBuildHook(BuildHookInterface[Any]):
    """Adds a library for each level of the machine to the wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compiles what is not compiled yet; ``version`` is "editable" or "standard"."""
        root = Path(self.root, "native")
        if not root.exists():  # dependencies alone are installed
            return
        sys.path.insert(0, str(root))
        from outrider.native.compiler import ensure_all

        libraries, failures = ensure_all()
        for failure in failures:
            self.app.display_warning(f"No compiled code for a level of this machine: {failure}")
        if libraries and version != "editable":
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"
            build_data["force_include"] |= {str(path): str(path.relative_to(root)) for path in libraries}
