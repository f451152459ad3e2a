"""`outrider run-batch`: requests of a file in the format of OpenAI's batches, answered into another file.

https://platform.openai.com/docs/api-reference/batch has both formats.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO
from uuid import uuid4

import httpx
import msgspec
from outrider.cli.commands.asking.complete import INTERRUPTED
from outrider.cli.commands.asking.stream import CONNECT_S, UnreachableError, served_model
from outrider.mesh.access import Access
from outrider.mesh.errors import ConfigError
from rich.progress import Progress

_URLS = ("/v1/chat/completions", "/v1/completions", "/v1/responses")
_BUSY = (429, 503)
_TRIES = 8
_LATER_S = 1.0
_FAILED = 1
_GOES_ON = "the same command goes on from here"


class BatchRequest(msgspec.Struct):
    """A line of the input."""

    custom_id: str
    url: str
    body: dict[str, Any]
    method: str = "POST"


class _Response(msgspec.Struct):
    status_code: int
    request_id: str
    body: Any


class BatchResult(msgspec.Struct):
    """A line of the output."""

    id: str
    custom_id: str
    response: _Response | None = None
    error: dict[str, str] | None = None

    @property
    def answered(self) -> bool:
        """Whether the request needs no other try."""
        return self.response is not None and self.response.status_code == 200

    @property
    def reason(self) -> str:
        """Which request it is, and why it has no answer: the status, and the message of an error in OpenAI's form."""
        if self.response is None:
            return f"{self.custom_id}: {self.error}"
        body = self.response.body
        error = body.get("error") if isinstance(body, dict) else None
        said = error.get("message", "") if isinstance(error, dict) else ""
        return f"{self.custom_id}: status {self.response.status_code}{f', {said}' if said else ''}"


def run(access: Access, file: Path, out: Path, concurrency: int) -> int:
    """Sends the requests of ``file`` that have no answer in ``out``, and adds theirs; the exit code, 1 if some failed.

    Raises:
        ConfigError: a line is no request, or ``out`` is no file of results.
        RequestError: the gateway is out of reach; the answers so far are in ``out``.
    """
    requests = list(_requests(file))
    answered = _kept(out)
    waiting = [request for request in requests if request.custom_id not in answered]
    if done := len(requests) - len(waiting):
        print(f"{done} of {len(requests)} requests have their answer in {out}.", file=sys.stderr)
    try:
        failures = asyncio.run(_answer_all(access, waiting, out, concurrency)) if waiting else []
    except KeyboardInterrupt:
        print(f"outrider: interrupted: {_GOES_ON}", file=sys.stderr)
        return INTERRUPTED
    print(f"{len(requests) - len(failures)} of {len(requests)} requests are answered in {out}.", file=sys.stderr)
    if failures:
        print(f"{len(failures)} failed, such as {failures[0].reason}", file=sys.stderr)
    return _FAILED if failures else 0


def _requests(file: Path) -> Iterator[BatchRequest]:
    decoder, seen = msgspec.json.Decoder(BatchRequest), set[str]()
    try:
        lines = file.read_bytes().splitlines()
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}") from None
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            request = decoder.decode(line)
        except msgspec.MsgspecError as error:
            raise ConfigError(f"{file}, line {number}: {error}") from None
        if request.url not in _URLS or request.method != "POST":
            raise ConfigError(
                f"{file}, line {number}: {request.method} {request.url} is not POST of one of {', '.join(_URLS)}"
            )
        if request.custom_id in seen:
            raise ConfigError(f"{file}, line {number}: custom_id {request.custom_id!r} is there twice")
        seen.add(request.custom_id)
        yield request


def _kept(out: Path) -> set[str]:
    """Ids of the requests that ``out`` answers; its other lines, of failures or cut off, are removed."""
    decoder, kept = msgspec.json.Decoder(BatchResult), dict[str, bytes]()
    with suppress(FileNotFoundError):
        lines = out.read_bytes().splitlines(keepends=True)
        for number, line in enumerate(lines, 1):
            try:
                result = decoder.decode(line)
            except msgspec.MsgspecError:
                if number < len(lines):
                    raise ConfigError(f"{out}, line {number}, is no result of a batch: name another file") from None
                continue
            if result.answered and line.endswith(b"\n"):
                kept[result.custom_id] = line
        new = out.with_name(f"{out.name}.new")
        new.write_bytes(b"".join(kept.values()))
        new.replace(out)
    return set(kept)


async def _answer_all(access: Access, requests: list[BatchRequest], out: Path, concurrency: int) -> list[BatchResult]:
    """Answers ``requests``, so many at a time; the results of those that failed."""
    model, waiting, failed = served_model(access), iter(requests), list[BatchResult]()
    trusted = access.context() if access.ca else True
    timeout = httpx.Timeout(None, connect=CONNECT_S)
    with out.open("ab") as results, Progress(disable=not sys.stderr.isatty()) as progress:
        task = progress.add_task(f"{len(requests)} requests", total=len(requests))
        async with httpx.AsyncClient(
            base_url=access.url.rstrip("/"), headers=access.headers, timeout=timeout, trust_env=False, verify=trusted
        ) as client:

            async def work() -> None:
                for request in waiting:
                    result = await _answer(client, request, model)
                    if not result.answered:
                        failed.append(result)
                    _append(results, result)
                    progress.advance(task)

            try:
                async with asyncio.TaskGroup() as group:
                    for _ in range(min(concurrency, len(requests))):
                        group.create_task(work())
            except ExceptionGroup as errors:
                if not isinstance(error := errors.exceptions[0], httpx.TransportError):
                    raise
                why = str(error) or type(error).__name__
                raise UnreachableError(f"{access.url} is out of reach ({why}): {_GOES_ON}") from None
    return failed


async def _answer(client: httpx.AsyncClient, request: BatchRequest, model: str) -> BatchResult:
    """The result of a request; a gateway that is busy is asked again."""
    body = {"model": model, **request.body, "stream": False}
    for left in reversed(range(_TRIES)):
        response = await client.post(request.url, json=body)
        if response.status_code not in _BUSY or not left:
            break
        await asyncio.sleep(_seconds(response.headers.get("retry-after", "")))
    try:
        content: Any = response.json()
    except ValueError:
        content = response.text
    request_id = response.headers.get("x-request-id", "")
    return BatchResult(
        f"batch_req_{uuid4().hex}", request.custom_id, _Response(response.status_code, request_id, content)
    )


def _seconds(retry_after: str) -> float:
    with suppress(ValueError):
        return max(float(retry_after), _LATER_S)
    return _LATER_S


def _append(results: BinaryIO, result: BatchResult) -> None:
    results.write(msgspec.json.encode(result) + b"\n")
    results.flush()
