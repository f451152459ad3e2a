"""What sets one family of decoders apart from another, read from the fields of its configuration."""
