"""rope_kv_write: rotates queries and keys by their positions and writes keys and values to their pages.

Rotary embeddings (Su et al. 2021, "RoFormer"), over interleaved pairs: elements 2i and 2i + 1 of a head are one complex
number, turned by the angle ``position * frequency[i]``. Checkpoints that pair i with i + head_dim / 2 have the rows of
their query and key weights reordered when they are loaded, which changes no product of a query and a key.
"""

from outrider.kernels.rope_kv_write.cpu import rope_kv_write

__all__ = ["rope_kv_write"]
