"""Chat requests as users send them, by kind."""
