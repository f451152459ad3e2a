"""`outrider up`, and the commands for meshes of this machine that run."""
