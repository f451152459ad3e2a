"""The client over NATS, for asyncio."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import nats
import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from outrider_client._async.blocks import AsyncBlock
from outrider_client.calls import PATIENCE_S, Attempts, Gateways, Messages, Prompt, body
from outrider_client.errors import BadRequestError, ConnectionFailedError, GatewayError, error_of_answer
from outrider_client.nats.login import Connection, login, trust
from outrider_client.nats.stream import AsyncStream, Body, whole
from outrider_client.types import Answer

_REFUSED = "Authorization Violation"
_CODE, _NO_RESPONDERS = "nats-service-error-code", "503"

Callback = Callable[[Msg], Awaitable[None]]


class _SubjectPrefix(msgspec.Struct):
    subject_prefix: str


class _Models(msgspec.Struct):
    models: list[str]


class AsyncClient(AsyncBlock):
    """A client of the gateways on NATS; tasks of one event loop may share a client.

    Methods raise the errors of `outrider_client.errors`.

    Args:
        servers: URLs of NATS, with user and password if NATS requires them.
        seed: file with the seed of the user's nkey, if NATS requires one; `OSError` if it cannot be read.
        ca: PEM file of the authorities to trust, for ``tls://`` URLs; the system's if absent. `OSError` or
            `ssl.SSLError` if it is no certificate.
        api_key: API key for the gateways, and for NATS, if neither a seed nor the URLs name a user.
        timeout: seconds that a gateway may take to answer.
        max_retries: retries if no gateway answers, and after a retryable error.
        retry_after_s: longest wait in seconds that a gateway may ask for; with a longer one, the error is raised.
        resume_s: seconds without success after which the client gives up a broken stream.
        silence_s: seconds without a token after which the client resumes a stream.
    """

    def __init__(
        self,
        servers: str | Sequence[str] = "nats://127.0.0.1:4222",
        *,
        seed: str | os.PathLike[str] | None = None,
        ca: str | os.PathLike[str] | None = None,
        api_key: str | None = None,
        timeout: float = 30.0,
        max_retries: int = 2,
        retry_after_s: float = PATIENCE_S,
        resume_s: float = 30.0,
        silence_s: float = 15.0,
    ) -> None:
        self._servers = [servers] if isinstance(servers, str) else list(servers)
        self._login = login(self._servers, Path(seed) if seed is not None else None, api_key)
        self._login |= trust(Path(ca)) if ca is not None else {}
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else None
        self._timeout, self._retries, self._patience_s = timeout, max_retries, retry_after_s
        self.resume_s, self.silence_s = resume_s, silence_s
        self._client = Client()
        self._joining = asyncio.Lock()
        self._on_loss: dict[Callable[[], None], None] = {}
        self._prefix = ""

    async def close(self) -> None:
        """Closes the connection to NATS."""
        self._on_loss.clear()
        if self._client.is_connected or self._client.is_reconnecting:
            await self._client.close()

    async def complete(self, prompt: Prompt, **parameters: Any) -> Answer:
        """A completion."""
        return await whole(self.stream(prompt, **parameters), chat=False)

    async def chat(self, messages: Messages, **parameters: Any) -> Answer:
        """An answer to a chat; function calls are in the text, as generated JSON."""
        return await whole(self.stream(messages=messages, **parameters), chat=True)

    def stream(
        self, prompt: Prompt | None = None, *, messages: Messages | None = None, **parameters: Any
    ) -> AsyncStream:
        """Streams a completion of ``prompt`` or an answer to ``messages``, chunk by chunk."""
        return AsyncStream(self, body(prompt, messages, parameters))

    def resume(self, request_id: str, from_index: Sequence[int] = (0,)) -> AsyncStream:
        """Resumes a stream of another process from an index of each choice."""
        return AsyncStream(self, None, request_id, from_index)

    async def cancel(self, request_id: str) -> None:
        """Ends a stream for all its readers."""
        await self.ask("cancel", {"request_id": request_id})

    async def models(self) -> list[str]:
        """Names of the served models."""
        return msgspec.json.decode(await self.ask("models", {}), type=_Models).models

    async def subject_prefix(self) -> str:
        """The prefix of the subjects of this client's requests."""
        if not self._prefix:
            self._prefix = msgspec.json.decode(await self.ask("hello", {}), type=_SubjectPrefix).subject_prefix
        return self._prefix

    async def ask(self, endpoint: str, body: Body) -> bytes:
        """One answer, with retries if no gateway answers and after retryable errors."""
        attempts = self.attempts()
        while True:
            try:
                return (await self._request(endpoint, body)).data
            except (GatewayError, nats.errors.Error, OSError) as error:
                await asyncio.sleep(attempts.pause(error))

    def attempts(self) -> Attempts:
        """Retries of one request or stream; NATS chooses the gateway."""
        return Attempts(Gateways("nats"), self._retries, self._patience_s)

    async def listen(self, subject: str, callback: Callback) -> Subscription:
        """Subscribes to ``subject``; calls ``callback`` for each message."""
        client = await self.connected()
        subscription = await client.subscribe(subject, cb=callback)
        await client.flush()
        return subscription

    async def post(self, endpoint: str, body: Body, callback: Callback) -> Subscription:
        """Sends a request; calls ``callback`` for each answer."""
        client = await self.connected()
        inbox, data = client.new_inbox(), self._encoded(body)
        subscription = await client.subscribe(inbox, cb=callback)
        await client.publish(_subject(endpoint), data, reply=inbox, headers=self._headers)
        return subscription

    async def answer(self, answered: asyncio.Future[Msg]) -> bytes:
        """Content of the first answer to a post."""
        message = await asyncio.wait_for(answered, self._timeout)
        _require_success(message)
        return message.data

    def on_loss(self, callback: Callable[[], None]) -> None:
        """Calls ``callback`` when NATS ends the connection, as it does after some minutes where it knows keys."""
        self._on_loss[callback] = None

    def forget_loss(self, callback: Callable[[], None]) -> None:
        """Ends `on_loss`."""
        self._on_loss.pop(callback, None)

    async def connected(self) -> Client:
        """The connection, opened at first use and after NATS has ended it; it reconnects by itself."""
        async with self._joining:
            if not (self._client.is_connected or self._client.is_reconnecting):
                self._client = await self._join()
        return self._client

    async def _join(self) -> Client:
        client, errors = Connection(), _LastError()
        try:
            connecting = client.connect(
                self._servers,
                connect_timeout=2,
                max_reconnect_attempts=-1,
                error_cb=errors.note,
                closed_cb=partial(self._closed, client),
                **self._login,
            )
            await _within(self._timeout, connecting)
        except (OSError, nats.errors.Error) as error:
            await client.close()
            why = errors.text or str(error) or type(error).__name__
            raise ConnectionFailedError(f"NATS was not reached: {why}") from error
        return client

    async def _closed(self, client: Client) -> None:
        if client is self._client:  # and not one that was never connected
            for callback in list(self._on_loss):
                callback()

    async def _request(self, endpoint: str, body: Body) -> Msg:
        client = await self.connected()
        answer = await client.request(_subject(endpoint), self._encoded(body), self._timeout, headers=self._headers)
        _require_success(answer)
        return answer

    def _encoded(self, body: Body) -> bytes:
        data, most = msgspec.json.encode(body), self._client.max_payload
        if len(data) > most:
            raise BadRequestError(
                f"{len(data)} bytes are more than NATS takes in one message, {most}: ask over HTTP or gRPC", status=413
            )
        return data


async def _within(seconds: float, work: Coroutine[Any, Any, None]) -> None:
    """Waits for ``work``; raises `TimeoutError` if it takes longer than ``seconds`` seconds.

    Cancels until the work has ended: `asyncio.wait_for` of Python 3.11 loses a cancellation that comes as its future
    ends (python/cpython#86296), and nats-py goes on trying.
    """
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait({task}, timeout=seconds)
    finally:
        while not task.done():
            task.cancel()
            await asyncio.wait({task}, timeout=1)
    if task.cancelled():
        raise TimeoutError
    task.result()


def _subject(endpoint: str) -> str:
    return f"outrider.v1.{endpoint}"


class _LastError:
    """The last error of a connection, which is otherwise ignored: requests over it fail visibly.

    That NATS does not know the user is kept: NATS closes the connection then, which is an error as well.
    """

    text = ""

    async def note(self, error: Exception) -> None:
        if _REFUSED not in self.text:
            self.text = str(error)


def _require_success(answer: Msg) -> None:
    """Raises the error in an answer, if there is one."""
    headers = {key.lower(): value for key, value in (answer.headers or {}).items()}
    if headers.get("status") == _NO_RESPONDERS:
        raise nats.errors.NoRespondersError
    if (code := headers.get(_CODE)) is not None:
        raise error_of_answer(int(code), answer.data, None, headers.get("retry-after"))
