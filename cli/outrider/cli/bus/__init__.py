"""Who may do what on the broker: rights and seeds of its users, and its configuration of both."""
