"""The stages: each module's `run` adds its findings to a report."""
