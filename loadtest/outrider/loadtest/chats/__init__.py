"""Chat requests in modes of speculation that run in rotation."""
