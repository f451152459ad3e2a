"""What rules of abuse look at in a request."""

from __future__ import annotations

import msgspec


class Sample(msgspec.Struct, frozen=True):
    """A prompt of a request.

    Attributes:
        prompt: a hash of the prompt.
        beginning: a hash of its first characters.
        choices: answers to it.
        random: whether answers may differ: the temperature is above 0.
        short: whether an answer may have 4 tokens at most.
        logprobs: whether it is short and asks for 10 log-probabilities a token, or more.
    """

    prompt: int
    beginning: int
    choices: int = 1
    random: bool = False
    short: bool = False
    logprobs: bool = False


class Source(msgspec.Struct, frozen=True):
    """Who sent a request. Without a ``tenant`` the ``actor`` is only who the sender claims to be."""

    actor: str = ""
    tenant: str = ""
    address: str = ""

    @property
    def known(self) -> bool:
        """Whether the request has a valid key."""
        return bool(self.actor and self.tenant)

    @property
    def counted(self) -> tuple[str, ...]:
        """Names under which the request counts: its key and its tenant, or its address."""
        return (self.actor, f"tenant {self.tenant}") if self.known else (f"address {self.address}",)
