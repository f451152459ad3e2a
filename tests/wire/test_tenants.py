from __future__ import annotations

import msgspec
import pytest
from outrider.wire.tenants import Key, Limits, new_key, parse_key


def test_a_key_opens_with_its_own_secret_and_with_no_other():
    key, text = new_key("acme", 1000.0)
    _, other = new_key("acme", 1000.0)
    parsed = parse_key(text)
    assert parsed is not None
    assert parsed[0] == key.id
    assert key.matches(parsed[1])
    assert not key.matches(other.rpartition("-")[2])
    assert not key.matches("")


def test_what_is_stored_of_a_key_does_not_hold_its_secret():
    key, text = new_key("acme", 1000.0, label="ci", expires=2000.0, limits=Limits(tokens_per_day=5))
    stored = msgspec.json.encode(key)
    assert text.split("-", 2)[2].encode() not in stored
    assert msgspec.json.decode(stored, type=Key) == key


@pytest.mark.parametrize("text", ["", "sk-", "none", "sk-abc-def", "sk-0123456789abcdef-", "Bearer sk-x"])
def test_what_is_no_key_is_not_taken_for_one(text):
    assert parse_key(text) is None


def test_a_key_is_active_until_it_expires_or_is_revoked():
    key, _ = new_key("acme", 1000.0, expires=2000.0)
    assert [key.state(now) for now in (1999.9, 2000.0)] == ["active", "expired"]
    assert msgspec.structs.replace(key, revoked=1500.0).state(1600.0) == "revoked"


@pytest.mark.parametrize("wrong", ['{"tokens_per_day":0}', '{"weight":0}', '{"networks":["10.0.0.1/8"]}'])
def test_limits_that_make_no_sense_are_not_read(wrong):
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(wrong, type=Limits)
