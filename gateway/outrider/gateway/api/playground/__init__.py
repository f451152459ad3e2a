"""The playground: one page that tries the models."""
