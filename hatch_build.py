"""Compiles the C++ of `native/` when Outrider is installed.

A wheel has all levels of the machine; an editable installation has those that its CPU supports, in place. Without a C++
compiler, and on other machines than x86-64 and ARM64, the wheel is one of Python alone.

The environment variable ``OUTRIDER_WHEEL`` asks for a wheel for all computers of a kind: "x86_64" or "aarch64" with
glibc 2.28, or "arm64" with macOS 11; ``CXX`` must compile for them (`make wheels`).
"""

from __future__ import annotations

import os
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class NativeBuildHook(BuildHookInterface[Any]):
    """Adds the compiled libraries to the wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compiles what is not compiled yet; ``version`` is "editable" or "standard"."""
        root = Path(self.root, "native")
        if not root.exists():  # dependencies alone are installed
            return
        sys.path.insert(0, str(root))
        from outrider.native import compiler
        from outrider.native.levels import LEVELS, MACHINES, supported_levels

        platform = sysconfig.get_platform()
        levels = supported_levels() if version == "editable" else LEVELS
        if machine := os.environ.get("OUTRIDER_WHEEL"):
            system = "macosx_11_0" if machine == "arm64" else "manylinux_2_28"
            platform, levels = f"{system}_{machine}", MACHINES[machine]
            compiler.LIBRARIES = Path(self.root, "build", platform)  # another compiler's lie beside the sources
        libraries, failures = compiler.ensure_all(levels)
        for failure in failures:
            if machine:
                raise RuntimeError(failure)
            self.app.display_warning(f"No compiled code for a level of this machine: {failure}")
        if libraries and version != "editable":
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-{platform.replace('-', '_').replace('.', '_')}"
            build_data["force_include"] |= {str(path): f"outrider/native/libraries/{path.name}" for path in libraries}
