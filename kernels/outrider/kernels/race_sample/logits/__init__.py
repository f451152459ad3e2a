"""logits: what a draw makes of logits before truncation: penalties, grammar mask and temperature."""
