"""What authorities and certificates are given where a command says nothing else."""

TRUST_DOMAIN = "outrider.internal"
"""The name of the mesh."""

AUTHORITY_DAYS, DAYS = 1825, 7
"""How long an authority lives, and a certificate."""

LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")
"""Names and addresses by which clients reach a service."""
