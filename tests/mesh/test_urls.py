"""URLs of brokers: which can be used, and what messages show of them."""

from __future__ import annotations

import pytest
from outrider.mesh.errors import ConfigError
from outrider.mesh.urls import require_broker, without_passwords


@pytest.mark.parametrize(
    "url",
    [
        "nats://127.0.0.1:4222",
        "127.0.0.1:4222",
        "tls://mesh.example",
        "nats://u:p@[::1]:4222",
        "nats://a:1,nats://b:2",
        "nats://token@c",
    ],
)
def test_urls_of_brokers_are_taken(url: str) -> None:
    require_broker(url)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "http://127.0.0.1:4222",
        "nats://",
        "nats://127.0.0.1:4222.",
        "nats://127.0.0.1:99999",
        "nats://127.0.0.1:0",
        "nats://[::1",
        "nats://a:1,",
    ],
)
def test_another_text_is_refused_with_what_a_url_may_be(url: str) -> None:
    with pytest.raises(ConfigError, match=r"nats://HOST:PORT"):
        require_broker(url)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("nats://u:secret@h:1,tls://h:2", "nats://u:********@h:1,tls://h:2"),
        ("nats://u:secret@[::1", "nats://u:********@[::1"),
        ("nats://u:@h", "nats://u:********@h"),
        ("no url", "no url"),
    ],
)
def test_passwords_are_masked_in_urls_that_cannot_be_used_too(url: str, shown: str) -> None:
    assert without_passwords(url) == shown
