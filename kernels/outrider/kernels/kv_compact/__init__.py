"""kv_compact: moves the accepted rows of a verified tree to where the sequence goes on."""

from outrider.kernels.kv_compact.reference import kv_compact

__all__ = ["kv_compact"]
