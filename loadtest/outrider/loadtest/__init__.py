"""Load tests of a running mesh: what its clients see, with and without speculation, in one run."""
