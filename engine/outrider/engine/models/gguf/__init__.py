"""GGUF files as models: header, metadata, tokenizer and weights, read from the mapped file.

The format is described in ggml's docs/gguf.md. `header`, `metadata`, `names`, `config`, `rope`, `vocabulary`, `splits`
and `definition` do without torch, since the tokenizer service has none.
"""
