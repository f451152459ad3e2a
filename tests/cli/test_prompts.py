from __future__ import annotations

import pytest

from tests.cli.calls import outrider


def test_prompts_are_stored_listed_shown_and_evicted(jetstream, tmp_path):
    text, chat = tmp_path / "text", tmp_path / "chat.json"
    text.write_text("You are\nhelpful.")
    chat.write_text('[{"role": "system", "content": "Be brief."}]')
    where = ("--tenant", "cli", "--nats-url", jetstream)
    assert outrider("prompts", "put", "plain", "--file", str(text), *where).returncode == 0
    assert outrider("prompts", "put", "chat", "--file", str(chat), "--chat", "--model", "m", *where).returncode == 0
    listed = outrider("prompts", "list", *where).stdout
    assert [line.split()[:2] for line in listed.splitlines()[1:]] == [["chat", "m"], ["plain", "any"]]
    assert outrider("prompts", "show", "plain", *where).stdout == "You are\nhelpful.\n"
    assert '"Be brief."' in outrider("prompts", "show", "chat", *where).stdout
    assert outrider("prompts", "evict", "plain", *where).returncode == 0
    gone = outrider("prompts", "show", "plan", *where)
    assert gone.returncode == 2
    assert "cli has no prompt plan: `outrider prompts list` shows all" in gone.stderr


@pytest.mark.parametrize(
    ("name", "text", "options", "sentence"),
    [
        ("a.b", "text", (), "is no name for a prompt"),
        ("a", "", (), "it must not be empty"),
        ("a", "x" * 300_000, (), "at most 262144"),
        ("a", '{"role": "user"}', ("--chat",), "no JSON array of messages"),
    ],
    ids=["name", "empty", "long", "no array"],
)
def test_an_invalid_prompt_is_refused_with_the_allowed_values(jetstream, tmp_path, name, text, options, sentence):
    file = tmp_path / "file"
    file.write_text(text)
    done = outrider("prompts", "put", name, "--file", str(file), *options, "--nats-url", jetstream)
    assert done.returncode == 2
    assert sentence in done.stderr
