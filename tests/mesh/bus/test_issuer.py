"""The key that admits users to the broker: its files, and its boxes. Brokers read its JWTs in `tests.security`."""

from __future__ import annotations

from pathlib import Path

import pytest
from outrider.cli.bus.directory import BusDirectory
from outrider.mesh.bus import Issuer, find_issuer
from outrider.mesh.errors import ConfigError


def made(path: Path) -> Issuer:
    BusDirectory(path).write()
    return Issuer(path / "issuer.nk")


def test_only_the_receiver_opens_a_box_and_only_of_its_sender(tmp_path: Path) -> None:
    sender, receiver, other = (made(tmp_path / name) for name in ("sender", "receiver", "other"))
    box = sender.seal(b"question", receiver.xkey)
    assert receiver.open(box, sender.xkey) == b"question"
    for issuer, told in ((other, sender), (receiver, other)):
        with pytest.raises(ValueError, match="xkey"):
            issuer.open(box, told.xkey)
    for damaged in (b"", box[:-1], box[:10], b"xkv2" + box[4:], box[:-1] + bytes([box[-1] ^ 1])):
        with pytest.raises(ValueError, match=r"box|nonce"):
            receiver.open(damaged, sender.xkey)
    wrong_end = sender.xkey[:-1] + ("6" if sender.xkey.endswith("7") else "7")
    for text in ("", "X", sender.public_key, sender.xkey.lower(), wrong_end):
        with pytest.raises(ValueError, match=r"xkey|padding|base32|padded"):
            receiver.open(box, text)


def test_an_issuer_lies_in_the_directory_or_beside_the_seed(tmp_path: Path) -> None:
    key = made(tmp_path).public_key
    for setting in (tmp_path, tmp_path / "gateway.nk"):
        found = find_issuer(str(setting))
        assert found is not None
        assert found.public_key == key
    (tmp_path / "issuer.nk").unlink()
    for setting in ("", str(tmp_path), str(tmp_path / "gateway.nk")):
        assert find_issuer(setting) is None


@pytest.mark.parametrize("content", [b"", b"SAABC", b"SU" + b"A" * 56])
def test_a_file_without_an_accounts_seed_is_refused_by_name(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "issuer.nk").write_bytes(content)
    with pytest.raises(ConfigError, match=r"issuer\.nk"):
        find_issuer(str(tmp_path))
