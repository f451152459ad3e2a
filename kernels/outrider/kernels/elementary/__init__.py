"""elementary: logarithms and exponentials with the same bits on every machine.

Libraries differ in the last bits of ``log`` and ``exp``, but draws must be the same everywhere. These are sequences of
float32 products, sums and quotients, each rounded to nearest by itself (IEEE 754), and of integer operations; nothing
in them is left to a compiler. `reference` spells them out in torch, `triton` in a kernel.
"""

from outrider.kernels.elementary.constants import MASS_BITS
from outrider.kernels.elementary.reference import exp, log, log_complement, mass

__all__ = ["MASS_BITS", "exp", "log", "log_complement", "mass"]
