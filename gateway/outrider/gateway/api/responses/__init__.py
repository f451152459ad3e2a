"""OpenAI's Responses API: bodies in, responses and their events out."""
