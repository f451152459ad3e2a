"""Settings of the KV cache."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, field
from outrider.mesh.config import Settings

_Bytes = Annotated[int, Meta(ge=1)]


class KvCacheSettings(Settings, kw_only=True, frozen=True):
    """Settings of the KV cache, in the configuration's ``[kvcache]`` table."""

    tiers: Annotated[
        list[str],
        Meta(min_length=1, description="tiers by plug-in name, fastest first; pages evicted from one go to the next"),
    ] = field(default_factory=lambda: ["memory"])
    quotas: Annotated[
        dict[str, _Bytes], Meta(description="most bytes in each tier; 268435456 for a tier that is not named")
    ] = {}
    tenant_share: Annotated[
        float, Meta(gt=0, le=1, description="largest share of a tier's quota for one tenant's pages")
    ] = 0.5
    ttl_s: Annotated[float, Meta(gt=0, le=31536000, description="seconds after which a page expires")] = 86400.0
    lease_s: Annotated[
        float, Meta(gt=0, le=60, description="seconds for which shared pages stay in place for a silent reader")
    ] = 5.0
    options: Annotated[dict[str, dict[str, Any]], Meta(description="settings of the tiers, a table each")] = {}
