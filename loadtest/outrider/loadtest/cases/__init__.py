"""Chats that combine features of requests: what is asked, what came of it, and what is wrong with that."""
