"""What an operator may set on a KV cache."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, field
from outrider.mesh.config import Settings

_Bytes = Annotated[int, Meta(ge=1)]


class KvCacheSettings(Settings, kw_only=True, frozen=True):
    """Settings of the KV cache, in the configuration's ``[kvcache]`` table."""

    tiers: Annotated[
        list[str],
        Meta(min_length=1, description="tiers by plug-in name, quickest first; what one evicts goes to the next"),
    ] = field(default_factory=lambda: ["memory"])
    quotas: Annotated[
        dict[str, _Bytes], Meta(description="most bytes in each tier; 268435456 where a tier is not named")
    ] = {}
    tenant_share: Annotated[
        float, Meta(gt=0, le=1, description="most of a tier's quota that one tenant's pages may take")
    ] = 0.5
    ttl_s: Annotated[float, Meta(gt=0, le=31536000, description="seconds after which a page is forgotten")] = 86400.0
    lease_s: Annotated[
        float, Meta(gt=0, le=60, description="seconds for which shared pages stay in place for a reader that is silent")
    ] = 5.0
    options: Annotated[dict[str, dict[str, Any]], Meta(description="settings of those tiers, a table each")] = {}
