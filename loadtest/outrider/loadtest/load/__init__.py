"""Clients, prompts and shapes of load, and what a pass of them came to."""
