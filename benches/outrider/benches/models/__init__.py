"""Times steps of models on this machine, beside the least time that it allows; measures bits per byte of models."""
