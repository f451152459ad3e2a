"""logits: a draw's changes to logits before truncation: penalties, grammar mask and temperature."""
