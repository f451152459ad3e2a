"""Requests that users make of a chat model, and what speculation makes of them."""
