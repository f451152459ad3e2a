"""The recipe of the pocket models: corpus, tokenizer, training, distillation, export, card."""
