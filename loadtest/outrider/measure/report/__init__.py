"""Reports of `outrider bench` and of the steps of a request."""
