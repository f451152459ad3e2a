"""The library through which Triton launches kernels: ``python -m outrider.kernels.host_library DIR`` compiles it.

Triton itself compiles it before the first launch, and loads it from its cache. That takes a C compiler, and a cache on
a file system that allows programs. An image with CUDA has neither. It has the library in the folder that the variable
``OUTRIDER_LAUNCHER`` names, and `Cache` as its ``TRITON_CACHE_MANAGER``.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from triton import knobs
from triton.backends.nvidia import driver
from triton.runtime.cache import FileCacheManager

_FOLDER = os.environ.get("OUTRIDER_LAUNCHER", "")
_DRIVER = "libcuda.so.1"
_NO_DEVICE = 100
"""CUDA_ERROR_NO_DEVICE."""


class Cache(FileCacheManager):  # type: ignore[misc]
    """Triton's cache, and before it the folder of the launcher, in which nothing is written."""

    def get_file(self, filename: str) -> str | None:
        """The path of a file of this entry; None if there is none."""
        shipped = Path(_FOLDER, filename)
        found: str | None = str(shipped) if _FOLDER and shipped.exists() else super().get_file(filename)
        return found


def compile_launcher(folder: Path) -> None:
    """Compiles the launcher into ``folder``, and what stands in for NVIDIA's driver; no GPU is needed.

    Raises:
        OSError: there is no C compiler.
        subprocess.CalledProcessError: it reported an error.
    """
    folder.mkdir(parents=True, exist_ok=True)
    _compile_stand_in(folder / _DRIVER)
    with TemporaryDirectory() as cache, knobs.cache.scope():
        knobs.cache.dir = cache
        _load_with(folder)
        for library in Path(cache).rglob("*.so"):
            shutil.copy(library, folder)


def load_launcher() -> None:
    """Loads the launcher as the first launch does.

    Without NVIDIA's driver, what `compile_launcher` wrote into the folder stands in for it: the library is loaded, and
    its functions fail.

    Raises:
        OSError: there is neither, or the library cannot be loaded.
    """
    if _has_driver():
        driver.CudaUtils()
    else:
        _load_with(Path(_FOLDER))


def _compile_stand_in(library: Path) -> None:
    """A library with every function of NVIDIA's driver that the launcher calls; each returns an error."""
    source = Path(driver.__file__).with_name("driver.c").read_text()
    names = sorted(set(re.findall(r"\b(cu[A-Z]\w*)\(", source)))
    functions = "".join(f"int {name}(void) {{ return {_NO_DEVICE}; }}\n" for name in names)
    command = [os.environ.get("CC", "gcc"), "-shared", "-fPIC", f"-Wl,-soname,{_DRIVER}", "-x", "c", "-"]
    subprocess.run([*command, "-o", library], input=functions, text=True, check=True)


def _has_driver() -> bool:
    try:
        ctypes.CDLL(_DRIVER)
    except OSError:
        return False
    return True


def _load_with(folder: Path) -> None:
    ctypes.CDLL(str(folder / _DRIVER), ctypes.RTLD_GLOBAL)
    with knobs.nvidia.scope():
        knobs.nvidia.libcuda_path = str(folder)
        driver.CudaUtils()


if __name__ == "__main__":
    compile_launcher(Path(sys.argv[1]))
