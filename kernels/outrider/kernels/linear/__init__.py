"""linear: a weight packed once for products with few rows."""

from outrider.kernels.linear.cpu import Linear, pack

__all__ = ["Linear", "pack"]
