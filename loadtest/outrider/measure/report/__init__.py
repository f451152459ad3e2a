"""Reports of `outrider bench`."""
