"""Fixtures of an authority and of a server with its certificate."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from outrider.mesh.rpc import Server
from outrider.mesh.security import Certificates

from tests.certificates import Certified
from tests.mesh.security.serving import serving


@pytest.fixture
def certified(tmp_path: Path) -> Certified:
    """An authority."""
    return Certified(tmp_path / "authority")


@pytest.fixture
def certificates(certified: Certified) -> Certificates:
    """The tokenizer's."""
    return certified.certificates("tokenizer")


@pytest.fixture
async def address(certificates: Certificates) -> AsyncIterator[str]:
    """Address of a tokenizer."""
    async with serving(Server(certificates=certificates)) as address:
        yield address
