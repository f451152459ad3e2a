"""Proves Outrider on a GPU in minutes, on a machine that has PyTorch and Triton and no network.

`python -m gpu_proof` in the root of a checkout runs it, `--dry` on a CPU. `python -m gpu_proof.pack` collects the
packages that such a machine lacks. docs/gpu.md tells more.
"""
