from __future__ import annotations

import json

import pytest
from outrider.cli.processes.options import UpOptions
from outrider.cli.processes.plan import make_plan
from outrider.cli.stores.records import Records, parse_span, with_changes
from outrider.mesh.bus import Bucket, Bus
from outrider.mesh.errors import ConfigError
from outrider.wire.tenants import BUCKET, Limits

from tests.cli.calls import outrider


def test_limits_are_set_changed_and_lifted_by_name():
    first = with_changes(Limits(), ["tokens_per_minute=100", "models=a,b", "weight=2.5", "priority=-1"])
    assert first == Limits(tokens_per_minute=100, models=("a", "b"), weight=2.5, priority=-1)
    second = with_changes(first, ["tokens_per_minute=none", "networks=10.0.0.0/8"])
    assert second == Limits(models=("a", "b"), weight=2.5, priority=-1, networks=("10.0.0.0/8",))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ("tokens=5", "NAME=VALUE, with one of requests_per_minute"),
        ("tokens_per_day", "NAME=VALUE"),
        ("tokens_per_day=0", ">= 1"),
        ("tokens_per_day=many", "tokens_per_day = 'many'"),
        ("weight=0", "weight"),
        ("networks=10.0.0.1/8", "networks: 10.0.0.1/8 has host bits set"),
    ],
)
def test_a_wrong_limit_is_refused_with_the_allowed_values(change, sentence):
    with pytest.raises(ConfigError) as caught:
        with_changes(Limits(), [change])
    assert sentence in str(caught.value)


def test_spans_of_time_are_numbers_with_a_unit():
    assert [parse_span(text, "--grace") for text in ("45s", "30m", "12h", "90d")] == [45, 1800, 43200, 7776000]
    with pytest.raises(ConfigError, match="--grace 1w"):
        parse_span("1w", "--grace")


@pytest.mark.parametrize("text", ["0s", "36501d", "99999999999d"])
def test_a_key_lives_for_a_second_to_a_hundred_years(text):
    with pytest.raises(ConfigError, match=f"--expires {text}"):
        parse_span(text, "--expires", least=1)
    assert parse_span("36500d", "--expires", least=1) == 36500 * 86400


def test_keys_without_a_broker_are_one_sentence_and_exit_code_3(unused_tcp_port):
    done = outrider("keys", "list", "--nats-url", f"nats://127.0.0.1:{unused_tcp_port}")
    assert done.returncode == 3
    assert "was not reached within 2 s" in done.stderr


@pytest.mark.parametrize("command", [("tenants", "list"), ("prompts", "list"), ("up", "--port", "0")])
def test_a_url_that_is_none_of_a_broker_is_one_sentence_and_exit_code_2(command):
    refused = outrider(*command, "--nats-url", "nats://u:secret@127.0.0.1:4222.")
    assert (refused.returncode, refused.stderr.count("\n"), "secret" in refused.stderr) == (2, 1, False)
    assert refused.stderr.startswith("outrider: nats_url = 'nats://u:********@127.0.0.1:4222.' is not the URL")


def test_nothing_is_changed_where_the_audit_log_cannot_be_written(jetstream, tmp_path, monkeypatch):
    monkeypatch.setenv("OUTRIDER_AUDIT_LOG", str(tmp_path / "none" / "audit.jsonl"))
    done = outrider("tenants", "set", "unseen", "--nats-url", jetstream)
    assert (done.returncode, "cannot be written" in done.stderr) == (2, True)
    monkeypatch.delenv("OUTRIDER_AUDIT_LOG")
    assert outrider("tenants", "show", "unseen", "--nats-url", jetstream).returncode == 2


def test_a_key_for_an_unknown_tenant_is_refused_with_the_nearest_name(jetstream):
    assert outrider("tenants", "set", "acme", "--nats-url", jetstream).returncode == 0
    done = outrider("keys", "create", "--tenant", "acne", "--nats-url", jetstream)
    assert done.returncode == 2
    assert "there is no tenant acne (did you mean acme?)" in done.stderr


def test_a_key_is_replaced_once_and_by_one_that_lives_as_long(jetstream, tmp_path, monkeypatch):
    monkeypatch.setenv("OUTRIDER_AUDIT_LOG", str(tmp_path / "audit.jsonl"))

    def keys(*words):
        return outrider("keys", *words, "--nats-url", jetstream)

    assert outrider("tenants", "set", "rotating", "--nats-url", jetstream).returncode == 0
    first = keys("create", "--tenant", "rotating", "--expires", "90d").stdout.strip()
    second = keys("rotate", first, "--grace", "1h").stdout.strip()
    again = keys("rotate", first)
    assert (again.returncode, again.stdout) == (2, "")
    assert "was replaced at" in again.stderr
    third = keys("rotate", second)
    assert third.returncode == 0
    text = (tmp_path / "audit.jsonl").read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    events = ["tenant_created", "key_created", "key_rotated", "key_rotated"]
    assert [(line["event"], line["tenant"], line["door"]) for line in lines] == [(e, "rotating", "cli") for e in events]
    assert lines[2]["subject"] == f"key {first.split('-')[1]}"
    assert not any(secret.split("-", 2)[2] in text for secret in (first, second))
    assert outrider("audit", "verify", str(tmp_path / "audit.jsonl")).returncode == 0
    (tmp_path / "audit.jsonl").write_text("".join(text.splitlines(keepends=True)[::2]))
    assert outrider("audit", "verify", str(tmp_path / "audit.jsonl")).returncode == 1


@pytest.mark.parametrize("id_", ["é", "a.b"])
def test_an_unknown_key_is_refused(jetstream, id_):
    done = outrider("keys", "show", id_, "--nats-url", jetstream)
    assert (done.returncode, done.stderr) == (2, f"outrider: there is no key {id_}: `outrider keys list` shows all\n")


def test_listing_keys_of_an_unknown_tenant_is_an_error(jetstream):
    done = outrider("keys", "list", "--tenant", "nobody", "--nats-url", jetstream)
    assert done.returncode == 2
    assert "there is no tenant nobody" in done.stderr


def test_a_mesh_with_keys_names_the_command_that_makes_them(tmp_path):
    plan = make_plan(UpOptions(port=0, log_dir=tmp_path, nats_store=tmp_path / "kept", sets=["gateway.auth=keys"]))
    assert any(f"--nats-url {plan.broker.url}" in note for note in plan.notes)
    assert plan.broker.process is not None
    assert str(tmp_path / "kept") in plan.broker.process.command
    assert not make_plan(UpOptions(port=0, log_dir=tmp_path)).notes


@pytest.fixture
async def records(jetstream):
    bus = Bus()
    await bus.connect(jetstream, "test", wait_s=10)
    bucket = Bucket(bus, BUCKET)
    await bucket.open()
    yield Records(bucket)
    await bus.close()


async def test_a_key_has_the_scopes_that_it_was_made_with_and_keeps_them_when_it_is_replaced(records, capsys):
    await records.set_tenant("scoped", [])
    sentence = r"--scope admins: not one of http, grpc, nats, admin \(did you mean admin\?\)"
    with pytest.raises(ConfigError, match=sentence):
        await records.create("scoped", "", None, [], ["admins"])
    capsys.readouterr()
    await records.create("scoped", "", None, [], ["http", "admin"])
    await records.rotate(capsys.readouterr().out, "1d")
    await records.show_key(capsys.readouterr().out)
    assert ["scopes", "http,admin"] in [line.split() for line in capsys.readouterr().out.splitlines()]


async def test_a_tenant_is_disabled_until_it_is_enabled_again(records, capsys):
    async def state():
        capsys.readouterr()
        await records.list_tenants()
        return next(line.split()[3] for line in capsys.readouterr().out.splitlines() if line.startswith("paused "))

    await records.set_tenant("paused", [])
    await records.switch_tenant("paused", disabled=True)
    await records.set_tenant("paused", ["tokens_per_day=5"])
    assert await state() == "disabled"
    await records.switch_tenant("paused", disabled=False)
    assert await state() == "active"
    with pytest.raises(ConfigError, match="pausd"):
        await records.switch_tenant("pausd", disabled=True)
