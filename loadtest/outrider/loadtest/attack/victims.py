"""A tenant that streams seeded completions all the time, in a separate process, so that no attack delays its clock.

`python -m outrider.loadtest.attack.victims` reads a `Task` as JSON from standard input. The process writes a line of
JSON for each stream that has ended, and ends with its standard input.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import uvloop
from outrider.loadtest.attack.reader import PATIENCE_S, Story, client, read
from outrider.loadtest.load import prompts

CLIENTS = 4
_QUESTIONS = 12
_TOKENS = 64
_AT_A_TIME = 8
_PAUSE_S = 0.05
_LINE_BYTES = 1 << 22
_SETTLE_S = 3 * PATIENCE_S
_SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "minLength": 40}, "size": {"type": "integer"}},
    "required": ["name", "size"],
    "additionalProperties": False,
}


class Task(msgspec.Struct, frozen=True):
    """URLs of the gateways, and the tenant's key."""

    urls: list[str]
    key: str


def questions(count: int, max_tokens: int, seed: int = 0) -> list[dict[str, Any]]:
    """``count`` bodies with seeds, which fix the answers; every fourth answer follows a JSON Schema."""
    texts = prompts.held_out(300)
    return [_question(texts[number % len(texts)], seed + number, max_tokens) for number in range(count)]


def _question(prompt: str, seed: int, max_tokens: int) -> dict[str, Any]:
    body = {"prompt": prompt, "max_tokens": max_tokens, "temperature": 1.0, "seed": seed}
    return body | ({"structured_outputs": {"json": _SCHEMA}} if seed % 4 == 3 else {"ignore_eos": True})


async def references(urls: Sequence[str], key: str, asked: Sequence[dict[str, Any]]) -> list[list[Any]]:
    """The answers of an undisturbed mesh; `RuntimeError` if an answer is missing."""
    few = asyncio.Semaphore(_AT_A_TIME)

    async def one(number: int) -> Story:
        async with few:
            return await read(http, urls, key, asked[number], number)

    async with client() as http:
        stories = await asyncio.gather(*(one(number) for number in range(len(asked))))
    if wrong := [story for story in stories if story.outcome != "whole"]:
        raise RuntimeError(f"an undisturbed stream was {wrong[0].outcome}: {wrong[0].why}")
    return [story.answer for story in stories]


def compare(story: Story, right: list[Any]) -> Story:
    """``story``, with the outcome ``altered`` if its whole answer differs from ``right``."""
    if story.outcome == "whole" and story.answer != right:
        tokens, wanted = story.answer[0], right[0]
        same = next((n for n, pair in enumerate(zip(tokens, wanted, strict=False)) if pair[0] != pair[1]), len(tokens))
        story.outcome, story.why = (
            "altered",
            f"{len(tokens)} tokens of {len(wanted)}, the first {same} of them the same",
        )
    return story


class Victims:
    """The stories of the victims' process, as the parent receives them."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.stories: list[Story] = []
        self._news = asyncio.Condition()

    async def listen(self) -> None:
        """Reads stories from the process until it ends."""
        assert self._process.stdout
        async for line in self._process.stdout:
            async with self._news:
                self.stories.append(msgspec.json.decode(line, type=Story))
                self._news.notify_all()

    async def settled(self, since: float) -> float:
        """Waits until each client has a whole stream that began after ``since``; returns the time of the last.

        `TimeoutError` after minutes.
        """
        async with asyncio.timeout(_SETTLE_S), self._news:
            await self._news.wait_for(lambda: len(self._first(since)) == CLIENTS)
        return max(self._first(since).values())

    def _first(self, since: float) -> dict[int, float]:
        whole = [story for story in self.stories if story.began >= since and story.outcome == "whole"]
        return {story.number % CLIENTS: story.ended for story in reversed(whole)}

    def between(self, began: float, ended: float) -> list[Story]:
        """Stories of all streams that ran between ``began`` and ``ended``."""
        return [story for story in self.stories if story.ended >= began and story.began <= ended]


@asynccontextmanager
async def running(urls: Sequence[str], key: str) -> AsyncIterator[Victims]:
    """Runs victims that stream inside the block."""
    command = [sys.executable, "-m", "outrider.loadtest.attack.victims"]
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, limit=_LINE_BYTES)
    assert process.stdin
    process.stdin.write(msgspec.json.encode(Task(list(urls), key)) + b"\n")
    victims = Victims(process)
    listening = asyncio.create_task(victims.listen())
    try:
        await victims.settled(0.0)
        yield victims
    finally:
        process.stdin.close()
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await asyncio.wait({listening})
        await process.wait()


async def _stream(task: Task) -> None:
    asked = questions(_QUESTIONS, _TOKENS)
    right = await references(task.urls, task.key, asked)
    async with client() as http:
        await asyncio.gather(*(_client(http, task, asked, right, number) for number in range(CLIENTS)))


async def _client(http: Any, task: Task, asked: list[dict[str, Any]], right: list[Any], client: int) -> None:
    """Sends its share of the questions over and over; no two clients send the same question."""
    turn = 0
    while True:
        number = (client + turn * CLIENTS) % _QUESTIONS
        story = compare(await read(http, task.urls, task.key, asked[number], client + turn), right[number])
        story.number, story.answer = number, []
        sys.stdout.buffer.write(msgspec.json.encode(story) + b"\n")
        sys.stdout.buffer.flush()
        turn += 1
        await asyncio.sleep(_PAUSE_S)


async def _run() -> None:
    loop, reader = asyncio.get_running_loop(), asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin.buffer)
    task = msgspec.json.decode(await reader.readline(), type=Task)
    streaming = asyncio.create_task(_stream(task))
    orphaned = asyncio.create_task(reader.read())
    await asyncio.wait({streaming, orphaned}, return_when=asyncio.FIRST_COMPLETED)
    if streaming.done():
        streaming.result()
    streaming.cancel()


if __name__ == "__main__":
    uvloop.run(_run())
