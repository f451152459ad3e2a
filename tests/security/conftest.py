"""A broker and a gateway for the tests of a file."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping

import pytest

from tests.security.secured import TENANTS, Secured, make_key, open_secured


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """A broker and a gateway with keys."""
    with open_secured(tmp_path_factory.mktemp("secured")) as made:
        yield made


@pytest.fixture(scope="module")
def keys(secured: Secured) -> Mapping[str, str]:
    """A key of each tenant."""
    return {tenant: asyncio.run(make_key(secured, tenant)) for tenant in TENANTS}
