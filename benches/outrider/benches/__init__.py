"""Measurements of kernels, models and the verifier, without a mesh."""
