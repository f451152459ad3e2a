"""Ollama's API: its requests become chats, completions and embeddings, and their answers become its lines of JSON."""
