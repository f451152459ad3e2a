"""What OpenAI-shaped bodies have in common: parameters, prompts, tools, structure, log-probabilities."""
