"""What a verifier tells of its steps and requests: spans, the time line, distributions of its metrics."""
