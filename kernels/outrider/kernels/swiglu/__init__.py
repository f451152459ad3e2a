"""swiglu: the gated activation of the feed-forward block (Shazeer 2020, "GLU variants improve transformer")."""

from outrider.kernels.swiglu.cpu import swiglu

__all__ = ["swiglu"]
