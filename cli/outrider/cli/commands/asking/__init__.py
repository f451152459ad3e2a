"""Commands that ask a mesh: a completion, a chat, a file of requests."""
