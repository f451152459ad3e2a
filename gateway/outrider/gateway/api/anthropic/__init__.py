"""Anthropic's Messages API: its requests become those of a chat, and a chat's answers become its messages."""
