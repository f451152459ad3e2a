"""Clients, prompts and shapes of load, and summaries of their passes."""
