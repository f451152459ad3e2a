"""Checkpoints whose config.json has a ``quantization_config``."""

from outrider.models.quantized.checkpoint import QuantizedCheckpoint

__all__ = ["QuantizedCheckpoint"]
