"""Pages of keys and values: who holds them, which are free, their dtype, and factors for integers."""
