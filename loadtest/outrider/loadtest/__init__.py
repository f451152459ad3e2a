"""Load tests of a running mesh: what a client sees of it, with speculation and without, in one run."""
