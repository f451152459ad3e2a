"""A mesh's own authority: a directory with its certificate and key, and those that it issues to services."""
