"""A filter for tenants whose answers are filtered, and answers for it."""

from __future__ import annotations

from typing import Any

GUARD: dict[str, dict[str, Any]] = {
    "guard": {"plugin": "patterns", "secrets": "end"},
    "porter": {"plugin": "patterns", "secrets": "end", "on": "prompt"},
}
"""Options of a filter that masks e-mail addresses and ends an answer at a secret, and of one that so reads prompts."""
ADDRESS, SECRET = "bob.smith@example.org", "sk-abcdefghijklmnopqrstuvwx"
MASKED = (f"Mail {ADDRESS} now", "Mail [email] now")
"""An answer, and what readers get of it."""
ENDED = (f"Use {SECRET}, please", "Use ")


def forced(text: str) -> dict[str, Any]:
    """Parameters of a request whose answer is ``text``, in tokens that the seed decides."""
    return {"structured_outputs": {"choice": [text]}, "seed": 7, "max_tokens": 200, "temperature": 1}
