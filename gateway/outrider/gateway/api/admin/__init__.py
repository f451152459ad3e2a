"""The admin API, on an address of its own: tenants, keys and what they have used."""
