"""The commands of `outrider`, one module each."""
