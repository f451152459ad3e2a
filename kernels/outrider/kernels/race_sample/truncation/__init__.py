"""truncation: which tokens a draw may take, the same set on every machine."""

from outrider.kernels.race_sample.truncation.reference import Truncation, least_kept, truncate

__all__ = ["Truncation", "least_kept", "truncate"]
