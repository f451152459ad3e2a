"""One streamed answer over NATS."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import suppress
from secrets import token_hex
from typing import TYPE_CHECKING, Any

import msgspec
import nats.errors
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from outrider_client._async.blocks import AsyncBlock
from outrider_client.errors import ConflictError, GatewayError, OutriderClientError
from outrider_client.nats.frames import AcceptedRequest, Choices, Gap
from outrider_client.types import Answer, Choice, Chunk, CompletionDetails, Detail, Message, Usage

if TYPE_CHECKING:
    from outrider_client.nats.client import AsyncClient

Body = Mapping[str, Any]

_decode_accepted = msgspec.json.Decoder(AcceptedRequest).decode


class AsyncStream(AsyncBlock):
    """Chunks of one answer across gateways and verifiers; iterate once.

    Another process can `AsyncClient.resume` the stream by ``id`` and ``next``. Leaving the block, or `close`, ends an
    unfinished generation.
    """

    def __init__(
        self, client: AsyncClient, body: Body | None, request_id: str = "", from_index: Sequence[int] = ()
    ) -> None:
        self._client, self._body, self._id = client, body, request_id
        self._start = list(from_index) or [0] * int((body or {}).get("n", 1))
        self._attempts = client.attempts()
        self._messages: asyncio.Queue[tuple[Subscription | None, bytes | None]] = asyncio.Queue()
        self._subscriptions: list[Subscription] = []
        self._relay: Subscription | None = None
        self._choices: Choices | None = None
        self._chunks = self._read()

    @property
    def id(self) -> str:
        """The request's id; empty before the request is sent."""
        return self._id

    @property
    def next(self) -> list[int]:
        """Index of the next token of each choice."""
        return list(self._choices.next if self._choices else self._start)

    def __aiter__(self) -> AsyncIterator[Chunk]:
        return self._chunks

    async def close(self) -> None:
        """Stops reading, and ends the generation if a gateway can be reached."""
        await self._chunks.aclose()
        if self._choices is not None and not self._choices.done:
            self._choices.ended = [True] * len(self._choices.ended)
            with suppress(OutriderClientError):
                await self._client.cancel(self._id)

    async def _read(self) -> AsyncGenerator[Chunk, None]:
        self._client.on_loss(self._lost)
        try:
            choices = await (self._follow() if self._body is None else self._begin(self._body))
            while not choices.done:
                chunk = await self._chunk(choices)
                if chunk is not None:
                    self._attempts.succeeded(self._client.resume_s)
                    yield chunk
        finally:
            self._client.forget_loss(self._lost)
            for subscription in [*self._subscriptions, *([self._relay] if self._relay else [])]:
                with suppress(nats.errors.Error):
                    await subscription.unsubscribe()

    async def _begin(self, body: Body) -> Choices:
        """Subscribes to frames before it sends the request, so that no frame is missed."""
        name = token_hex(16)
        subject = await self._client.subject_prefix() + name
        self._id = subject.rpartition(".")[2]
        choices = self._choices = Choices(self._id, self._start, echoed=bool(body.get("echo")))
        for place in range(len(self._start)):
            where = subject if place == 0 else f"{subject}-{place}"
            self._subscriptions.append(await self._client.listen(where, self._on_frame))
        self._attempts.succeeded(self._client.resume_s)
        with suppress(ConflictError):  # an earlier try was accepted, and its answer was lost
            choices.accepted = _decode_accepted(await self._client.ask("generate", {**body, "request_id": name}))
        return choices

    async def _follow(self) -> Choices:
        choices = self._choices = Choices(self._id, self._start, echoed=self._start[0] < 0)
        await self._resume_with_retries(choices)
        return choices

    async def _chunk(self, choices: Choices) -> Chunk | None:
        """The next chunk; None for a message without one. Resumes a stream after a gap or silence."""
        source: Subscription | None = self._relay
        try:
            source, data = await asyncio.wait_for(self._messages.get(), self._client.silence_s)
            if data is None:
                raise Gap("the connection was lost")
            return choices.take(data)
        except (Gap, TimeoutError):
            if source is self._relay:  # otherwise the stream was resumed already
                await self._resume_with_retries(choices)
        return None

    async def _resume_with_retries(self, choices: Choices) -> None:
        while True:
            try:
                return await self._resume(choices)
            except (GatewayError, nats.errors.Error, OSError, TimeoutError) as error:
                await asyncio.sleep(self._attempts.pause(error))

    async def _resume(self, choices: Choices) -> None:
        """Asks a gateway to relay the stream."""
        if self._relay is not None:
            with suppress(nats.errors.Error):  # it ends with its connection as well
                await self._relay.unsubscribe()
        answered: asyncio.Future[Msg] = asyncio.get_running_loop().create_future()
        relay: Subscription | None = None

        async def take(message: Msg) -> None:
            if answered.done():
                self._messages.put_nowait((relay, message.data))
            else:
                answered.set_result(message)

        body = {"request_id": self._id, "from_index": choices.resume_index}
        self._relay = relay = await self._client.post("resume", body, take)
        choices.accepted = _decode_accepted(await self._client.answer(answered))

    def _lost(self) -> None:
        self._messages.put_nowait((self._relay, None))

    async def _on_frame(self, message: Msg) -> None:
        self._messages.put_nowait((None, message.data))


async def whole(stream: AsyncStream, *, chat: bool) -> Answer:
    """Reads a stream to its end; returns its chunks as one answer."""
    parts: dict[int, list[Chunk]] = {}
    async with stream:
        async for chunk in stream:
            parts.setdefault(chunk.choices[0].index, []).append(chunk)
    chunks = [parts[place] for place in sorted(parts)]
    details = [_detail([chunk.outrider or Detail() for chunk in choice]) for choice in chunks]
    last = chunks[0][-1]
    return msgspec.structs.replace(
        last,
        choices=[_choice(choice, chat) for choice in chunks],
        usage=_usage([choice[-1].usage or Usage(0, 0, 0) for choice in chunks]),
        outrider=details[0] if len(details) == 1 else Detail(choices=details),
    )


def _choice(chunks: Sequence[Chunk], chat: bool) -> Choice:
    text, last = "".join(chunk.text for chunk in chunks), chunks[-1].choices[0]
    logprobs = [entry for chunk in chunks for entry in (chunk.choices[0].logprobs or {}).get("content", [])]
    deltas = [chunk.choices[0].delta for chunk in chunks]
    thought = "".join(delta.reasoning_content or "" for delta in deltas if delta is not None)
    return msgspec.structs.replace(
        last,
        text=None if chat else text,
        message=Message(content=text, reasoning_content=thought or None) if chat else None,
        delta=None,
        logprobs={"content": logprobs} if logprobs else None,
    )


def _detail(parts: Sequence[Detail]) -> Detail:
    return msgspec.structs.replace(
        parts[-1],
        first_index=parts[0].first_index,
        tokens=[token for part in parts for token in part.tokens],
        texts=[text for part in parts for text in part.texts],
        guessed_by=[name for part in parts for name in part.guessed_by],
        drafts=[draft for part in parts for draft in part.drafts],
    )


def _usage(parts: Sequence[Usage]) -> Usage:
    """The cost of all choices: one prompt, and the tokens of each choice."""
    first, generated = parts[0], sum(part.completion_tokens for part in parts)
    details = [part.completion_tokens_details for part in parts]
    return Usage(
        first.prompt_tokens,
        generated,
        first.prompt_tokens + generated,
        first.prompt_tokens_details,
        CompletionDetails(
            sum(detail.accepted_prediction_tokens for detail in details),
            sum(detail.rejected_prediction_tokens for detail in details),
            sum(detail.reasoning_tokens for detail in details),
        ),
    )
