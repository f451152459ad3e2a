"""What commands read and write in the mesh's key-value store: tenants, keys, named prompts."""
