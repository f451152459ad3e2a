"""Tensor parallelism (Shoeybi et al. 2019, "Megatron-LM"): one model over several processes, each with a share of it.

In: a checkpoint and a number of ranks. Out: a `LlamaModel` in this process, rank 0, whose steps all ranks run together.
"""
