"""rms_norm: scaling by the root mean square (Zhang, Sennrich 2019, "Root mean square layer normalization")."""

from outrider.kernels.rms_norm.cpu import rms_norm

__all__ = ["rms_norm"]
