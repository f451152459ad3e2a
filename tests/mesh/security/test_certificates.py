"""Certificates as files: what is refused, and what replaces what while a process runs."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest
from outrider.mesh.config import Settings
from outrider.mesh.errors import ConfigError
from outrider.mesh.security import Certificates, Files, Identity, mesh_certificates
from outrider.mesh.security.contexts import ServerContext
from structlog.testing import capture_logs

from tests.certificates import DAY, EXPIRED, Certified


@pytest.fixture
def files(certified: Certified) -> Files:
    return certified.issue("verifier")


def test_an_identity_is_a_spiffe_id_of_a_kind_in_a_trust_domain() -> None:
    identity = Identity("prod.example.com", "kvcache")
    assert Identity.parse("spiffe://prod.example.com/outrider/kvcache") == identity
    assert identity.uri == "spiffe://prod.example.com/outrider/kvcache"
    assert identity.server_name == "kvcache.prod.example.com"


@pytest.mark.parametrize(
    "uri",
    [
        "spiffe://prod/kvcache",
        "spiffe://prod/outrider/kvcache/1",
        "spiffe:///outrider/kvcache",
        "https://prod/outrider/kvcache",
        "spiffe://prod/outrider/",
        "spiffe://Prod/outrider/kvcache",
        "spiffe://prod./outrider/kvcache",
        "x spiffe://prod/outrider/kvcache",
    ],
)
def test_other_uris_are_no_identity(uri: str) -> None:
    assert Identity.parse(uri) is None


def test_files_are_read_with_their_identity(files: Files) -> None:
    certificates = Certificates(files, "verifier")
    assert certificates.identity == Identity("outrider.internal", "verifier")
    assert certificates.material.certificate == files.certificate.read_bytes()


def _remove(files: Files) -> None:
    files.certificate.unlink()


def _damage(files: Files) -> None:
    files.certificate.write_bytes(files.certificate.read_bytes()[:300])


def _damage_key(files: Files) -> None:
    files.key.write_text("no key")


def _damage_authorities(files: Files) -> None:
    assert files.authorities is not None
    files.authorities.write_text("")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (_remove, "tls_certificate = '{certificate}' cannot be read: No such file or directory"),
        (_damage, "tls_certificate = '{certificate}' is no certificate in PEM"),
        (_damage_key, "tls_key = '{key}' is no private key in PEM without a password"),
        (_damage_authorities, "tls_ca = '{ca}' is no certificate in PEM"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_by_name(
    change: Callable[[Files], None], sentence: str, files: Files
) -> None:
    change(files)
    with pytest.raises(ConfigError) as caught:
        Certificates(files, "verifier")
    assert str(caught.value) == sentence.format(certificate=files.certificate, key=files.key, ca=files.authorities)


def test_a_key_of_another_certificate_is_refused(certified: Certified, files: Files) -> None:
    with pytest.raises(ConfigError, match="not the key"):
        Certificates(replace(files, key=certified.issue("gateway").key))


def test_an_expired_certificate_is_refused_with_its_end(certified: Certified) -> None:
    with pytest.raises(ConfigError, match=r"expired at 20\d\d-"):
        Certificates(certified.issue("verifier", EXPIRED), "verifier")


def test_a_certificate_of_another_kind_is_refused(certified: Certified) -> None:
    with pytest.raises(ConfigError) as caught:
        Certificates(certified.issue("gateway"), "verifier")
    assert "is no certificate of a verifier" in str(caught.value)
    assert "and is spiffe://outrider.internal/outrider/gateway" in str(caught.value)


def test_renewed_files_are_taken_and_told_of(certified: Certified, files: Files) -> None:
    certificates = Certificates(files, "verifier")
    told: list[object] = []
    certificates.on_change(told.append)
    assert not certificates.refresh()
    certified.rotate()
    assert certificates.refresh()
    assert certificates.material.certificate == files.certificate.read_bytes()
    assert told == [certificates.material]
    assert not certificates.refresh()


@pytest.mark.parametrize("lifetime", [DAY, EXPIRED])
def test_files_that_cannot_be_used_replace_nothing_and_are_told_of_once(
    lifetime: timedelta, certified: Certified, files: Files
) -> None:
    certificates = Certificates(files, "verifier")
    before, old_key = certificates.material, files.key.read_bytes()
    certified.issue("verifier", lifetime)
    if lifetime == DAY:
        files.key.write_bytes(old_key)
    with capture_logs() as logs:
        assert not any(certificates.refresh() for _ in range(4))
    assert certificates.material is before
    assert [line["event"] for line in logs] == ["a certificate was not renewed"]
    certified.issue("verifier")
    assert certificates.refresh()


def test_one_table_names_the_files_of_all_kinds(certified: Certified) -> None:
    settings = Settings(**certified.settings)
    for kind in ("gateway", "kvcache"):
        certified.issue(kind)
        made = mesh_certificates(settings, kind)
        assert made is not None
        assert made.identity.kind == kind
    assert mesh_certificates(Settings(), "gateway") is None


@pytest.mark.parametrize("missing", ["tls_certificate", "tls_key", "tls_ca"])
def test_the_three_settings_go_together(missing: str, certified: Certified) -> None:
    with pytest.raises(ConfigError, match=f"{missing} is not: tls_certificate and tls_key and tls_ca go together"):
        mesh_certificates(Settings(**certified.settings | {missing: ""}), "gateway")


async def test_a_context_gives_new_connections_the_renewed_certificate_and_old_ones_go_on(
    certified: Certified, files: Files
) -> None:
    certificates = Certificates(files)
    context = ServerContext(certificates, ["http/1.1"]).context

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(100):
            writer.write(data)
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]
    trusting = ssl.create_default_context(cafile=str(certified.ca))
    reader, writer = await asyncio.open_connection("localhost", port, ssl=trusting)
    first = writer.get_extra_info("ssl_object").getpeercert()["serialNumber"]
    certified.rotate()
    assert certificates.refresh()
    for name in ("localhost", "127.0.0.1"):
        _, second = await asyncio.open_connection(name, port, ssl=trusting)
        assert second.get_extra_info("ssl_object").getpeercert()["serialNumber"] != first
        second.close()
        await second.wait_closed()
    writer.write(b"still here")
    assert await reader.read(100) == b"still here"
    writer.close()
    await writer.wait_closed()
    server.close()
    await server.wait_closed()
