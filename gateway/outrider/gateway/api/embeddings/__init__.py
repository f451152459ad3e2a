"""Embeddings, and the scores and ranks that are made of them; the APIs of OpenAI, Jina, Cohere and vLLM."""
