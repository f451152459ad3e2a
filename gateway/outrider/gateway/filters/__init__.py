"""What becomes of an answer's text before readers get it: filters, plug-ins of the group ``outrider.filters``.

In comes the text that tokens make final; out goes the text that readers get. Streams call this room.
"""

from __future__ import annotations

from outrider.gateway.filters.filter import Filter, Passed

__all__ = ["Filter", "Passed"]
