"""One answer for several requests that ask for the same: generated once, or cached.

In come jobs; out go streams that read an answer of their own, a shared one or a cached one. Generation calls it.
"""

from __future__ import annotations

from outrider.gateway.sharing.pool import AnswerPool

__all__ = ["AnswerPool"]
