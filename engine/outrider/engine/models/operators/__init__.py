"""Steps that run an operator at a time, on GPUs and on CPUs without the compiled decoder, and their CUDA graphs."""
