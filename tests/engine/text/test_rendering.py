"""Templates of model files are programs of others: they take no more than their share of time and memory."""

from __future__ import annotations

import os
import resource
import signal
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from outrider.engine.text import TextError, Tokenizer
from outrider.engine.text.errors import NotRendered

from tests.engine.text.makers import CHATML, byte_level, tokenizer

LOOP = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
ONLY_FOR = "{% if messages[0].content == 'bad' %}BODY{% endif %}[{{ messages[0].content }}]"
LIMIT = 256 << 20


def made(template: str) -> Tokenizer:
    return tokenizer(byte_level(), template=template)


def chat(content: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": content}]


def text_of(chosen: Tokenizer, content: str) -> str:
    return "".join(part.text for part in chosen.chat_parts(chat(content)))


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (LOOP, "takes more than 5 s of CPU time for these messages"),
        ("{{ '%500000000d' % messages | length }}", "takes more than 256 MB of memory for these messages"),
        ("{{ 'a' * 500000000 }}", "takes more than 256 MB of memory for these messages"),
        ("{{ 'a' * 50000000 }}", "makes a text of more than 32 MB of these messages"),
    ],
    ids=["endless", "a wide number", "a long text", "a large answer"],
)
def test_a_template_that_takes_too_much_refuses_its_chat_and_others_are_rendered(body: str, why: str) -> None:
    chosen, before = made(ONLY_FOR.replace("BODY", body)), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert text_of(chosen, "good") == "[good]"
    with pytest.raises(TextError) as caught:
        text_of(chosen, "bad")
    assert str(caught.value) == f"the chat template {why}"
    assert text_of(chosen, "good") == "[good]"
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < LIMIT >> 10


@pytest.mark.parametrize("source", ["{{ '%500000000d' % 1 }}", "{{ 'a' * 5000000000 }}"])
def test_a_constant_of_a_template_is_not_computed_where_the_tokenizer_is(source: str) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(TextError, match="256 MB"):
        made(source).chat_parts(chat("a"))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < LIMIT >> 10


def test_a_tokenizer_without_chats_starts_no_process() -> None:
    before = children()
    assert made(CHATML).encode("def")
    assert children() == before


def test_a_template_that_does_not_compile_is_told_where_rendering_starts() -> None:
    with pytest.raises(TextError, match="does not compile"):
        made("{% if %}").start_rendering()


def cpu_ticks(process: int) -> int:
    """CPU time of a process, in hundredths of a second."""
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[11])


def test_a_process_that_others_kill_accuses_no_template() -> None:
    chosen = made(ONLY_FOR.replace("BODY", LOOP))
    before = children()
    text_of(chosen, "good")
    (process,) = children() - before
    caught: list[BaseException] = []

    def render() -> None:
        try:
            text_of(chosen, "bad")
        except TextError as error:
            caught.append(error)

    thread = threading.Thread(target=render)
    idle = cpu_ticks(process)
    thread.start()
    while cpu_ticks(process) < idle + 20:  # the template runs
        time.sleep(0.01)
    os.kill(process, signal.SIGKILL)
    thread.join(60)
    assert [type(error) for error in caught] == [NotRendered]
    assert text_of(chosen, "good") == "[good]"


def test_a_process_ends_with_its_tokenizer() -> None:
    before = children()
    chosen = made(CHATML)
    text_of(chosen, "good")
    started = children() - before  # a process of another test may end meanwhile
    assert started
    del chosen
    assert not started & children()


def test_what_is_forgotten_is_no_longer_in_any_process() -> None:
    chosen, before = made("[{{ messages[0].content }}]"), children()
    for content in ("usual", "h" * (1 << 20)):
        text_of(chosen, content)
    first = children() - before
    chosen.forget()
    assert len(first) == 2
    assert not first & children()
    for content in ("usual", "h" * (1 << 20)):
        assert text_of(chosen, content) == f"[{content}]"
    assert len(children() - before) == 2


def test_a_chat_in_any_language_comes_back_as_it_is() -> None:
    chosen = made("[{{ messages[0].content }}]")
    for content in ("Grüße 你好 🦀", "\u2028\x00\t\\", "\ud800", "x" * (1 << 20)):
        assert text_of(chosen, content) == f"[{content}]"


def children() -> set[int]:
    """Ids of the child processes of this process."""
    found = set()
    for status in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            if int(status.read_text().rpartition(")")[2].split()[1]) == os.getpid():
                found.add(int(status.parent.name))
    return found
