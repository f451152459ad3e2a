"""Requests as users send them to a chat model, and how speculation speeds them up."""
