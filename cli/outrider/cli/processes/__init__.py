"""The processes of a mesh on this machine: planned, started, kept alive, drained."""
