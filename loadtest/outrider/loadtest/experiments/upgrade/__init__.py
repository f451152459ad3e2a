"""A rolling restart of every service under load: `python -m outrider.loadtest upgrade`."""
