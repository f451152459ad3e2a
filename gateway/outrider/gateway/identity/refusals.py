"""Why a sender is refused."""

from __future__ import annotations

from typing import ClassVar

from outrider.mesh.errors import Overloaded, PermissionDenied, Unauthenticated


class InvalidKey(Unauthenticated):
    """The request has no key and no token, or none that is valid."""

    type: ClassVar[str] = "invalid_request_error"
    reason: ClassVar[str] = "invalid_api_key"


class WrongKey(InvalidKey):
    """The key or the token is not genuine: it may be a guess."""


class EndedKey(InvalidKey):
    """The key or the token is genuine, and no longer valid."""


class TooManyFailures(Overloaded):
    """Too many keys or tokens of one address, or secrets of one key, were wrong."""

    reason: ClassVar[str] = "too_many_failures"


class WrongNetwork(PermissionDenied):
    """The key is valid, but not from this address."""

    reason: ClassVar[str] = "ip_not_allowed"


class WrongScope(PermissionDenied):
    """The key or the token is valid, but not for this."""

    reason: ClassVar[str] = "insufficient_scope"
