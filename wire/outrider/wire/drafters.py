"""Versions of drafters as they are stored, for verifiers to load: JSON in the bucket `BUCKET`, under `record_entry`."""

from __future__ import annotations

import hashlib
import re

import msgspec

BUCKET = "outrider-drafters"
NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""Name of a drafter, or of a version."""
MOST_VERSIONS = 32
"""Most versions that a record lists."""


class Version(msgspec.Struct, frozen=True):
    """A version of a drafter: its ``model`` is a directory, or a name of the Hub; ``created`` in seconds since 1970."""

    name: str
    model: str
    created: float


class DrafterRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which version of a drafter guesses beside the target that is served as ``model``.

    Attributes:
        tenant: whose sequences it guesses for; None for all that have no version of their own.
        versions: all that there are, the oldest first.
        used: names of the versions in the order of their use: the last one is in use; without one, that of the
            verifier's settings is.
        judged: whether verifiers may give the version up where it earns less than the one before.
    """

    model: str
    drafter: str
    tenant: str | None = None
    versions: tuple[Version, ...] = ()
    used: tuple[str, ...] = ()
    judged: bool = True

    @property
    def version(self) -> Version | None:
        """The version in use; None for that of the verifier's settings."""
        return self.named(self.used[-1]) if self.used else None

    def named(self, name: str) -> Version | None:
        """The version of this name, if there is one."""
        return next((version for version in self.versions if version.name == name), None)


class DrafterState(msgspec.Struct, frozen=True):
    """What a verifier announces of a record: the stored ``revision``, the version that ``runs``, and how it came so."""

    drafter: str
    tenant: str | None
    revision: int
    runs: str
    state: str


def record_entry(model: str, drafter: str, tenant: str | None) -> str:
    """The key of a record in the bucket; a tenant's ends with the tenant."""
    key = f"{hashlib.sha256(model.encode()).hexdigest()[:16]}.{drafter}"
    return key if tenant is None else f"{key}.{tenant}"


def tenant_entries(tenant: str) -> str:
    """The keys of all records of a tenant, as a subject with wildcards."""
    return f"*.*.{tenant}"
