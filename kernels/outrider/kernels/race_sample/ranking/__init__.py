"""ranking: the largest logits of a row, and their log-probabilities."""
