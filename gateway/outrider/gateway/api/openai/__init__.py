"""OpenAI's completions and chats: bodies in, answers and chunks out, and streams that are resumed."""
