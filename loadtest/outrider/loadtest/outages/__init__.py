"""Servers of NATS, and a whole site, are killed under streams: `python -m outrider.loadtest.outages`.

`servers` runs the cluster of NATS, `mesh` the services at one site or two, `load` the streams; `__main__` kills, and
judges the streams.
"""
