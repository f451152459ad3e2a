"""A tenant that streams seeded completions all the time, in a separate process, so that no attack delays its clock.

`python -m outrider.loadtest.attack.victims` reads a `VictimTask` as JSON from standard input. The process
writes a line of JSON for each stream that has ended, and ends with its standard input.
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
from outrider.loadtest.attack.reader import PATIENCE_S, StreamRecord, client, read
from outrider.measure.load import prompts

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


class VictimTask(msgspec.Struct, frozen=True):
    """URLs of the gateways, and the tenant's key."""

    urls: list[str]
    key: str


def request_bodies(count: int, max_tokens: int, seed: int = 0) -> list[dict[str, Any]]:
    """``count`` bodies with seeds, which fix the answers; every fourth answer follows a JSON Schema."""
    texts = prompts.held_out(300)
    return [_question(texts[number % len(texts)], seed + number, max_tokens) for number in range(count)]


def _question(prompt: str, seed: int, max_tokens: int) -> dict[str, Any]:
    body = {"prompt": prompt, "max_tokens": max_tokens, "temperature": 1.0, "seed": seed}
    return body | ({"structured_outputs": {"json": _SCHEMA}} if seed % 4 == 3 else {"ignore_eos": True})


async def references(urls: Sequence[str], key: str, bodies: Sequence[dict[str, Any]]) -> list[list[Any]]:
    """The answers of an undisturbed mesh; `RuntimeError` if an answer is missing."""
    limit = asyncio.Semaphore(_AT_A_TIME)

    async def one(number: int) -> StreamRecord:
        async with limit:
            return await read(http, urls, key, bodies[number], number)

    async with client() as http:
        records = await asyncio.gather(*(one(number) for number in range(len(bodies))))
    if wrong := [record for record in records if record.outcome != "whole"]:
        raise RuntimeError(f"an undisturbed stream was {wrong[0].outcome}: {wrong[0].why}")
    return [record.answer for record in records]


def compare(record: StreamRecord, expected: list[Any]) -> StreamRecord:
    """``record``, with the outcome ``altered`` if its whole answer differs from ``expected``."""
    if record.outcome == "whole" and record.answer != expected:
        tokens, expected_tokens = record.answer[0], expected[0]
        same = next(
            (n for n, pair in enumerate(zip(tokens, expected_tokens, strict=False)) if pair[0] != pair[1]), len(tokens)
        )
        record.outcome, record.why = (
            "altered",
            f"{len(tokens)} tokens of {len(expected_tokens)}, the first {same} of them the same",
        )
    return record


class Victims:
    """The records of the victims' streams, as the parent process receives them."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.records: list[StreamRecord] = []
        self._news = asyncio.Condition()

    async def listen(self) -> None:
        """Reads records from the process until it ends."""
        assert self._process.stdout
        async for line in self._process.stdout:
            async with self._news:
                self.records.append(msgspec.json.decode(line, type=StreamRecord))
                self._news.notify_all()

    async def wait_until_served(self, since: float) -> float:
        """Waits until each client has a whole stream that began after ``since``; returns the time of the last.

        `TimeoutError` after minutes.
        """
        async with asyncio.timeout(_SETTLE_S), self._news:
            await self._news.wait_for(lambda: len(self._first(since)) == CLIENTS)
        return max(self._first(since).values())

    def _first(self, since: float) -> dict[int, float]:
        whole = [record for record in self.records if record.began >= since and record.outcome == "whole"]
        return {record.number % CLIENTS: record.ended for record in reversed(whole)}

    def records_between(self, began: float, ended: float) -> list[StreamRecord]:
        """Records of all streams that ran between ``began`` and ``ended``."""
        return [record for record in self.records if record.ended >= began and record.began <= ended]


@asynccontextmanager
async def running(urls: Sequence[str], key: str) -> AsyncIterator[Victims]:
    """Runs victims that stream inside the block."""
    command = [sys.executable, "-m", "outrider.loadtest.attack.victims"]
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, limit=_LINE_BYTES)
    assert process.stdin
    process.stdin.write(msgspec.json.encode(VictimTask(list(urls), key)) + b"\n")
    victims = Victims(process)
    listening = asyncio.create_task(victims.listen())
    try:
        await victims.wait_until_served(0.0)
        yield victims
    finally:
        process.stdin.close()
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await asyncio.wait({listening})
        await process.wait()


async def _stream(task: VictimTask) -> None:
    bodies = request_bodies(_QUESTIONS, _TOKENS)
    expected = await references(task.urls, task.key, bodies)
    async with client() as http:
        await asyncio.gather(*(_client(http, task, bodies, expected, number) for number in range(CLIENTS)))


async def _client(http: Any, task: VictimTask, bodies: list[dict[str, Any]], expected: list[Any], client: int) -> None:
    """Sends its share of the questions over and over; no two clients send the same question."""
    turn = 0
    while True:
        number = (client + turn * CLIENTS) % _QUESTIONS
        record = compare(await read(http, task.urls, task.key, bodies[number], client + turn), expected[number])
        record.number, record.answer = number, []
        sys.stdout.buffer.write(msgspec.json.encode(record) + b"\n")
        sys.stdout.buffer.flush()
        turn += 1
        await asyncio.sleep(_PAUSE_S)


async def _run() -> None:
    loop, reader = asyncio.get_running_loop(), asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin.buffer)
    task = msgspec.json.decode(await reader.readline(), type=VictimTask)
    streaming = asyncio.create_task(_stream(task))
    orphaned = asyncio.create_task(reader.read())
    await asyncio.wait({streaming, orphaned}, return_when=asyncio.FIRST_COMPLETED)
    if streaming.done():
        streaming.result()
    streaming.cancel()


if __name__ == "__main__":
    uvloop.run(_run())
