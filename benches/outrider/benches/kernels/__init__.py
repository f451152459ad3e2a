"""Measures kernels against what the machine can do and against torch: ``python -m outrider.benches.kernels``."""
