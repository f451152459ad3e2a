"""How the pocket models are made: corpus, tokenizer, training, distillation, export, card."""
