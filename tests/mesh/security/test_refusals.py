"""Who is refused by certificates, and the sentence that the log has about it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from outrider.mesh.addresses import hold_port
from outrider.mesh.errors import Unreachable
from outrider.mesh.rpc import Server, secure_channels
from outrider.mesh.security import Certificates, Files
from outrider.mesh.security.refusals import refusal
from structlog.testing import capture_logs

from tests.certificates import Certified
from tests.mesh.security.serving import SHORT, describe, end_of, serving
from tests.waiting import eventually


async def test_the_log_says_why_a_server_is_not_the_expected_one(certified: Certified, address: str) -> None:
    secure_channels(certified.certificates("gateway"))
    with capture_logs() as logs:
        with pytest.raises(Unreachable):
            await describe(address, "verifier")
        await eventually(lambda: _told(logs))
    assert _told(logs) == [f"the certificate of the verifier at {address} is not that of a verifier"]


async def test_an_expired_server_is_refused_and_the_callers_log_says_so(certified: Certified) -> None:
    ending = Certificates(certified.issue("tokenizer", SHORT), "tokenizer")
    async with serving(Server(certificates=ending)) as address:
        await end_of(ending)
        secure_channels(certified.certificates("gateway"))
        with capture_logs() as logs:
            with pytest.raises(Unreachable):
                await describe(address)
            await eventually(lambda: _told(logs))
    assert _told(logs) == [f"the certificate of the tokenizer at {address} has expired"]


async def test_the_log_says_why_a_server_that_was_away_is_refused_when_it_is_back(certified: Certified) -> None:
    port = hold_port()
    address = f"127.0.0.1:{port}"
    secure_channels(certified.certificates("gateway"))
    with capture_logs() as logs:
        with pytest.raises(Unreachable):
            await describe(address)
        async with serving(Server(port=port, certificates=certified.certificates("verifier"))):
            await eventually(lambda: _told(logs))
    assert _told(logs) == [f"the certificate of the tokenizer at {address} is not that of a tokenizer"]


async def test_an_expired_caller_is_refused_and_its_own_log_says_so(certified: Certified, address: str) -> None:
    caller = Certificates(certified.issue("gateway", SHORT), "gateway")
    secure_channels(caller)
    await end_of(caller)
    with capture_logs() as logs:
        with pytest.raises(Unreachable):
            await describe(address)
        await eventually(lambda: _told(logs))
    (why,) = _told(logs)
    assert why.startswith(f"tls_certificate = '{caller.files.certificate}' expired at 20")
    assert why.endswith(" UTC: give a new certificate and its key")


async def test_a_caller_of_another_authority_is_refused_on_both_sides(
    certified: Certified, address: str, tmp_path: Path
) -> None:
    foreign = Certified(tmp_path / "foreign")
    stranger = foreign.certificates("gateway")
    secure_channels(stranger)
    with pytest.raises(Unreachable):
        await describe(address)
    why = await refusal(address, "tokenizer", stranger)
    assert (
        why == f"the certificate of the tokenizer at {address} is not trusted: unable to get local issuer certificate"
    )


async def test_a_caller_whose_authority_the_server_does_not_trust_is_refused(
    certified: Certified, address: str, tmp_path: Path
) -> None:
    files = Certified(tmp_path / "foreign").issue("gateway")
    stranger = Certificates(Files("tls", files.certificate, files.key, certified.ca), "gateway")
    secure_channels(stranger)
    with pytest.raises(Unreachable):
        await describe(address)
    why = await refusal(address, "tokenizer", stranger)
    assert why is not None
    assert why.startswith(f"the tokenizer at {address} refused the certificate of this process")


async def test_a_caller_by_tls_of_a_server_in_the_clear_is_told_so(certified: Certified) -> None:
    async with serving(Server()) as clear:
        gateway = certified.certificates("gateway")
        secure_channels(gateway)
        with pytest.raises(Unreachable):
            await describe(clear)
        assert await refusal(clear, "tokenizer", gateway) == f"the tokenizer at {clear} does not speak TLS"


async def test_a_process_that_is_gone_is_no_matter_of_certificates(certified: Certified, unused_tcp_port: int) -> None:
    gateway = certified.certificates("gateway")
    assert await refusal(f"127.0.0.1:{unused_tcp_port}", "tokenizer", gateway) is None


def _told(logs: Any) -> list[str]:
    return [line["why"] for line in logs if line["event"] == "a service cannot be reached over TLS"]
