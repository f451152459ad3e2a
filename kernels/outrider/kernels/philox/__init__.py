"""philox: counter-based random numbers, and the exponential variates of the race rule.

Philox 4x32-10 (Salmon, Moraes, Dror, Shaw 2011, "Parallel random numbers: as easy as 1, 2, 3"). A number is a
function of (seed, position, vocabulary entry) and of nothing else, so any process can draw it again.
"""

from outrider.kernels.philox.reference import log_exponentials, philox_4x32

__all__ = ["log_exponentials", "philox_4x32"]
