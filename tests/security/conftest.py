"""A broker and a gateway for the tests of a file."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping

import pytest

from tests.security.door import TENANTS, Door, make_key, open_door


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    """A broker and a gateway with keys."""
    with open_door(tmp_path_factory.mktemp("door")) as made:
        yield made


@pytest.fixture(scope="module")
def keys(door: Door) -> Mapping[str, str]:
    """A key of each tenant."""
    return {tenant: asyncio.run(make_key(door, tenant)) for tenant in TENANTS}
