"""The parts that OpenAI-shaped bodies share: parameters, prompts, tools, structure, log-probabilities."""
