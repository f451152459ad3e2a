"""What the kernels of linear read of a weight."""
