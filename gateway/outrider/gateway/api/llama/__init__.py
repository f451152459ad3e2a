"""llama-server's API, as far as editors use it: its requests become completions."""
