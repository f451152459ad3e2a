"""An attacker that is told to come back comes back, and counts every answer."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest
from outrider.loadtest.attack.mesh import ATTACKER, Mesh
from outrider.loadtest.attack.requests import body, expect_survival
from outrider.loadtest.attack.verdict import AttackLog

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
BUSY = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 0\r\nContent-Length: 4\r\n\r\nbusy"
GONE = BUSY.replace(b"Retry-After: 0\r\n", b"")


@pytest.mark.parametrize(
    ("answers", "told", "problems"),
    [
        ([BUSY, BUSY, OK], {"503 busy": 2, "200": 1}, {}),
        ([BUSY, BUSY, BUSY, OK], {"503 busy": 3}, {"a long list: 503": 1}),
        ([GONE, OK], {"503 busy": 1}, {"a long list: 503": 1}),
    ],
)
async def test_an_answer_of_a_busy_mesh_is_a_problem_only_if_it_is_the_last(answers, told, problems):
    left, log = list(answers), AttackLog()

    async def serve(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(left.pop(0))
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        await expect_survival(Mesh(SimpleNamespace(url=url), 0, {ATTACKER: "key"}), [body()], log, "a long list")
    assert (log.answers, log.problems) == (told, problems)
