r"""Shapes of well-known secrets, as their issuers document them.

Each begins with a mark of its own, so that text which cannot be a secret is hardly ever held back.
"""

from __future__ import annotations

SECRETS = (
    r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b",  # AWS access key id
    r"\bgh[pousr]_[A-Za-z0-9]{36,}",  # GitHub token
    r"\bgithub_pat_[A-Za-z0-9_]{22,}",
    r"\bglpat-[A-Za-z0-9_-]{20,}",  # GitLab
    r"\bsk-[A-Za-z0-9_-]{20,}",  # OpenAI, Anthropic, Outrider
    r"\b[rs]k_(?:live|test)_[A-Za-z0-9]{16,}",  # Stripe
    r"\bxox[abeoprs]-[A-Za-z0-9-]{10,}",  # Slack
    r"\bAIza[A-Za-z0-9_-]{35}",  # Google API key
    r"\bhf_[A-Za-z0-9]{30,}",  # Hugging Face
    r"\bnpm_[A-Za-z0-9]{36}",
    r"\bpypi-[A-Za-z0-9_-]{50,}",
    r"\beyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}",  # JSON Web Token (RFC 7519)
    r"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY-----"  # RFC 7468, and the headers of RFC 1421
    r"(?:\s*Proc-Type: [0-9A-Z,]+\s+DEK-Info: [0-9A-Za-z,-]+)?[^-]*(?:-----END (?:[A-Z0-9]+ )*PRIVATE KEY-----)?",
)
EMAIL = r"[A-Za-z0-9._%+-]+@(?:[A-Za-z0-9-]+\.)+[A-Za-z]{2,24}\b"
"""An e-mail address as people write it: a small part of RFC 5322."""
