"""Tenants, keys and named prompts in the mesh's key-value store, as commands read and write them."""
