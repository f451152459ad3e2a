"""Who sends a request: verifies the bearer tokens of issuers, and counts failed authentications.

Tokens come in as text and go out as verified claims. The room `admission`, which knows tenants and keys, calls it.
"""
