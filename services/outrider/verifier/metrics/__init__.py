"""The verifier's metrics: the engine counts in plain numbers, which `Metrics` copies to Prometheus now and then.

A label ``model`` is the served name.
"""

from outrider.verifier.metrics.gpu import show_gpus
from outrider.verifier.metrics.update import Metrics

__all__ = ["Metrics", "show_gpus"]
