"""`outrider certs`: an authority in a directory, and what it issues."""

from __future__ import annotations

import re
import stat
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from outrider.cli.certificates.authority import Issue
from outrider.cli.certificates.directory import Directory
from outrider.mesh.security import Certificates, Files
from outrider.mesh.security.reading import identity_of

from tests.cli.calls import outrider


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    done = outrider("certs", "init", str(tmp_path / "certs"), "--trust-domain", "prod.example.com")
    assert done.returncode == 0
    return tmp_path / "certs"


def loaded(folder: Path, name: str) -> x509.Certificate:
    return x509.load_pem_x509_certificate((folder / f"{name}.crt").read_bytes())


def names(folder: Path, name: str) -> x509.SubjectAlternativeName:
    return loaded(folder, name).extensions.get_extension_for_class(x509.SubjectAlternativeName).value


def test_an_authority_is_made_once_and_only_its_owner_reads_its_key(folder: Path) -> None:
    assert stat.S_IMODE((folder / "ca.key").stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    key = (folder / "ca.key").read_bytes()
    again = outrider("certs", "init", str(folder))
    assert (again.returncode, again.stdout) == (2, "")
    assert "has an authority already: take another directory, or remove that one" in again.stderr
    assert (folder / "ca.key").read_bytes() == key


def test_a_certificate_names_its_kind_and_the_hosts_and_lives_for_a_week(folder: Path) -> None:
    hosts = ("--host", "api.example.com", "--host", "10.0.0.7")
    done = outrider("certs", "issue", str(folder), "gateway", "--name", "edge", *hosts)
    assert re.fullmatch(r"edge +gateway +until 20\S+ \S+ UTC  api.example.com, 10.0.0.7\n", done.stdout)
    certificate = loaded(folder, "edge")
    certificate.verify_directly_issued_by(loaded(folder, "ca"))
    identity = identity_of(certificate)
    assert identity is not None
    assert identity.uri == "spiffe://prod.example.com/outrider/gateway"
    assert names(folder, "edge").get_values_for_type(x509.DNSName) == [
        "gateway.prod.example.com",
        "api.example.com",
    ]
    left = certificate.not_valid_after_utc - datetime.now(UTC)
    assert timedelta(days=6, hours=23) < left <= timedelta(days=7)
    assert stat.S_IMODE((folder / "edge.key").stat().st_mode) == 0o600


def test_a_client_is_no_server(folder: Path) -> None:
    outrider("certs", "issue", str(folder), "client")
    usage = loaded(folder, "client").extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usage) == [x509.oid.ExtendedKeyUsageOID.CLIENT_AUTH]
    assert names(folder, "client").get_values_for_type(x509.DNSName) == []


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("verifer",), "verifer is no kind (did you mean verifier?): there are gateway, tokenizer, proposer"),
        (("verifier", "--name", "ca"), "'ca' is no name"),
        (("verifier", "--name", "../x"), "'../x' is no name"),
        (("verifier", "--host", "a b"), "'a b' is neither a host's name nor an IP address"),
    ],
)
def test_a_wrong_argument_is_refused_in_one_sentence(arguments: tuple[str, ...], sentence: str, folder: Path) -> None:
    done = outrider("certs", "issue", str(folder), *arguments)
    assert done.returncode == 2
    assert done.stderr.startswith(f"outrider: {sentence}")
    assert done.stderr.count("\n") == 1


def test_a_name_is_not_taken_from_another_kind(folder: Path) -> None:
    outrider("certs", "issue", str(folder), "gateway", "--name", "one")
    done = outrider("certs", "issue", str(folder), "verifier", "--name", "one")
    assert (done.returncode, done.stderr) == (2, "outrider: one is a certificate of a gateway: give another --name\n")


def test_without_an_authority_it_is_said_how_to_make_one(tmp_path: Path) -> None:
    done = outrider("certs", "issue", str(tmp_path), "gateway")
    assert done.returncode == 2
    assert f"`outrider certs init {tmp_path}` makes one" in done.stderr


def test_what_ends_soon_is_renewed_for_as_long_and_for_the_same_hosts(folder: Path) -> None:
    directory = Directory(folder)
    directory.issue("old", Issue("verifier", ("a.example.com",), timedelta(days=9)))
    new = directory.issue("new", Issue("verifier", (), timedelta(days=30)))
    (renewed,) = directory.rotate(datetime.now(UTC) + timedelta(days=6, hours=1))
    assert (renewed.name, renewed.hosts) == ("old", ["a.example.com"])
    assert (renewed.ends - renewed.begins) == timedelta(days=9, minutes=5)
    assert [each.ends for each in directory.issued() if each.name == "new"] == [new.ends]
    assert directory.rotate(datetime.now(UTC)) == []


def test_all_are_renewed_on_request(folder: Path) -> None:
    outrider("certs", "issue", str(folder), "gateway")
    before = loaded(folder, "gateway").serial_number
    assert outrider("certs", "rotate", str(folder)).stdout == "No certificate is due.\n"
    assert outrider("certs", "rotate", str(folder), "--all").stdout.startswith("gateway ")
    assert loaded(folder, "gateway").serial_number != before


def test_nothing_outlives_the_authority(tmp_path: Path) -> None:
    directory = Directory(tmp_path)
    authority = directory.init("short.internal", timedelta(days=2))
    assert directory.issue("gateway", Issue("gateway", (), timedelta(days=7))).ends == authority.ends


def test_the_list_has_names_kinds_and_ends(folder: Path) -> None:
    directory = Directory(folder)
    directory.issue("verifier", Issue("verifier", ("localhost",), timedelta(days=7)))
    directory.issue("past", Issue("kvcache", (), timedelta(seconds=-1)))
    lines = [line.split() for line in outrider("certs", "show", str(folder)).stdout.splitlines()]
    assert [line[:3] for line in lines] == [
        ["ca", "prod.example.com", "until"],
        ["past", "kvcache", "expired"],
        ["verifier", "verifier", "until"],
    ]


def test_a_reader_never_sees_half_a_file(folder: Path) -> None:
    directory, whole = Directory(folder), threading.Event()
    directory.issue("gateway", Issue("gateway", (), timedelta(days=7)))
    damaged: list[bytes] = []

    def read() -> None:
        while not whole.is_set():
            for ending in ("crt", "key"):
                content = (folder / f"gateway.{ending}").read_bytes()
                if not (content.startswith(b"-----BEGIN") and content.endswith(b"-----\n")):
                    damaged.append(content)

    reader = threading.Thread(target=read)
    reader.start()
    for _ in range(100):
        directory.rotate(datetime.now(UTC), every=True)
    whole.set()
    reader.join()
    assert not damaged
    assert not list(folder.glob(".*"))
    Certificates(Files("tls", folder / "gateway.crt", folder / "gateway.key", folder / "ca.crt"), "gateway")
