"""Leases of requests expire unless they are renewed."""

from __future__ import annotations

import asyncio

from outrider.verifier.rpc.leases import Leases

from tests import virtual_time


def test_a_lease_expires_at_its_end_unless_it_is_renewed_or_dropped() -> None:
    expired: list[tuple[str, float]] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        leases = Leases(lambda request: expired.append((request, loop.time())))
        for request in ("left", "renewed", "ended", "granted again"):
            leases.grant(request, 10)
        await asyncio.sleep(5)
        leases.renew(["renewed", "unknown"], 10)
        leases.grant("granted again", 2)
        leases.end("ended")
        await asyncio.sleep(100)

    virtual_time.run(main())
    assert expired == [("granted again", 7), ("left", 10), ("renewed", 15)]
