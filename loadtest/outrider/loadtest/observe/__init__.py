"""The dashboards and alerts of `deploy/observe`, and their check on a real mesh: `python -m outrider.loadtest.observe`.

`dashboards` reads the descriptions of dashboards, `grafana` writes them as Grafana's JSON. For the check, `prometheus`
runs a Prometheus with the shipped configuration, `watched_mesh` starts the services that it scrapes, `faults` makes
alerts fire, `answers` asks for every query and rule, and `pictures` draws the dashboards.
"""
