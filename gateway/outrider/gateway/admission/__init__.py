"""Who may ask, and how much: keys, networks, limits, deadlines and what is charged.

In come callers' keys and addresses, and what a request may use; out go a `Caller` and a `Reservation` of its limits,
or an error. Every room above may call it.
"""
