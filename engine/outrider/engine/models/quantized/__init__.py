"""Checkpoints whose config.json has a ``quantization_config``."""

from outrider.engine.models.quantized.checkpoint import QuantizedCheckpoint, open_checkpoint

__all__ = ["QuantizedCheckpoint", "open_checkpoint"]
