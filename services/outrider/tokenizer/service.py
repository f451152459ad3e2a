"""The tokenizer as a service: text in, ids out, and back."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

import grpc
import msgspec
from outrider.engine import store
from outrider.engine.errors import ModelError
from outrider.engine.requests import parameters
from outrider.engine.text import TextError, Tokenizer
from outrider.engine.text.chat import Part
from outrider.engine.text.errors import NotRendered
from outrider.engine.text.files import default_sampling
from outrider.engine.thoughts.marks import marks_of
from outrider.engine.worker import lower_priority
from outrider.mesh.errors import ConfigError, InvalidRequest
from outrider.mesh.service import Mesh, Service
from outrider.mesh.telemetry import counter, get_logger, histogram
from outrider.native.heap import give_memory_back
from outrider.tokenizer.encoding import begin, encode, size
from outrider.tokenizer.settings import TokenizerSettings
from outrider.v1 import tokenizer_pb2 as pb
from outrider.v1 import tokenizer_pb2_grpc as pb_grpc
from outrider.wire.calls import FORMATS, CallStyle, Mark, format_of
from outrider.wire.ids import unpack_ids
from outrider.wire.thoughts import ThoughtMark, ThoughtStyle

_INLINE_BYTES = 8 << 10  # takes less than a millisecond: cheaper than a hop to a thread
_HUGE_BYTES = 256 << 10
"""Size of texts that take turns: encoding one takes 0.1 s or more, and many times its size in memory."""
_CHATS = 4
"""Threads that wait for chats to be rendered: one chat is rendered at a time, while others are encoded."""
_WORDS_S = 3600.0
"""Most seconds for which the library's cache keeps words of texts."""

_log = get_logger("tokenizer")
_encoded = counter("tokenizer_encoded_tokens", "Tokens encoded from texts.")
_decoded = counter("tokenizer_decoded_tokens", "Tokens decoded to text.")
_encoding = histogram("tokenizer_encode_seconds", "Time of encoding the texts of one call.")


class TokenizerService(Service, pb_grpc.TokenizerServicer):
    """Turns text into ids and back for one model."""

    kind: ClassVar[str] = "tokenizer"
    settings: ClassVar[type[TokenizerSettings]] = TokenizerSettings

    def __init__(self, settings: TokenizerSettings) -> None:
        self._settings = settings
        self._huge = ThreadPoolExecutor(1, "huge-texts", initializer=lower_priority)
        self._chats = ThreadPoolExecutor(_CHATS, "chats")

    async def start(self, mesh: Mesh) -> None:
        """Loads the tokenizer."""
        await asyncio.to_thread(self._load)
        pb_grpc.add_TokenizerServicer_to_server(self, mesh.rpc)
        mesh.tasks.spawn(self._expire(), "expiry")

    def _load(self) -> None:
        model = self._settings.model
        try:
            place = store.obtain(model, self._settings.integrity, text_only=True, watch=store.logged(_log))
            self._tokenizer = Tokenizer.load(place)
            self._start_rendering(place)
            self._thoughts = _thoughts(self._tokenizer, self._settings)
            self._sampling = default_sampling(place) if self._settings.generation_config == "auto" else {}
        except (ModelError, TextError) as error:
            raise ConfigError(str(error)) from None
        self._calls = msgspec.to_builtins(call_style(self._tokenizer, self._settings.calls))
        self._name = self._settings.served_name or store.served_name(model)

    def _start_rendering(self, place: Path) -> None:
        try:
            self._tokenizer.start_rendering()
        except TextError as error:
            raise TextError(f"{place}: {error}") from None

    async def erase(self, tenant: str, before: float) -> dict[str, int]:
        """Empties what may hold parts of texts, in which no tenant can be told from another."""
        await self._forget()
        return {}

    async def _expire(self) -> None:
        while True:
            await asyncio.sleep(_WORDS_S)
            await self._forget()

    async def _forget(self) -> None:
        self._tokenizer.forget()
        with suppress(NotRendered):
            await asyncio.to_thread(self._tokenizer.start_rendering)

    def status(self) -> dict[str, Any]:
        """Status for the registry."""
        return {
            "model": self._name,
            "vocabulary": self._tokenizer.fingerprint,
            "context_length": self._tokenizer.context_length,
            "chat": self._tokenizer.has_chat_template,
            "calls": self._calls,
            "thoughts": self._thoughts,
            "sampling": [*self._sampling.items()],
            "infill_ends": None if self._tokenizer.infill is None else self._tokenizer.infill.ends,
        }

    async def Encode(self, request: pb.EncodeRequest, context: grpc.aio.ServicerContext) -> pb.EncodeResponse:  # noqa: N802
        """Ids of texts and chats.

        Long ones are encoded in threads, as are chats that cannot be rendered at once; huge ones in turns. So others do
        not wait.
        """
        with _encoding.time():
            chats = any(item.HasField("chat") for item in request.inputs)
            short = size(request) <= _INLINE_BYTES
            rendered = await self._rendered(request) if short and chats else None
            if rendered is not None or (short and not chats):
                response = encode(self._tokenizer, request, rendered)
            else:
                huge, usual = size(request) > _HUGE_BYTES, self._chats if chats else None
                pool, work = (self._huge, self._encode_huge) if huge else (usual, self._encode)
                response = await asyncio.get_running_loop().run_in_executor(pool, work, request)
        _encoded.inc(sum(len(output.ids) for output in response.outputs) // 4)
        return response

    async def _rendered(self, request: pb.EncodeRequest) -> Future[list[Part]] | None:
        """What `begin` returns, once it is done. A caller that leaves ends no rendering: another follows."""
        rendered = begin(self._tokenizer, request)
        if rendered is not None and not rendered.done():
            loop, done = asyncio.get_running_loop(), asyncio.Event()
            rendered.add_done_callback(lambda _: loop.call_soon_threadsafe(done.set))
            await done.wait()
        return rendered

    async def Decode(self, request: pb.DecodeRequest, context: grpc.aio.ServicerContext) -> pb.DecodeResponse:  # noqa: N802
        """Texts of ids."""
        batch = [_ids(data) for data in request.ids]
        _decoded.inc(sum(map(len, batch)))
        return pb.DecodeResponse(texts=[self._decode(ids, request.keep_special) for ids in batch])

    async def Describe(  # noqa: N802
        self, request: pb.DescribeTokenizerRequest, context: grpc.aio.ServicerContext
    ) -> pb.DescribeTokenizerResponse:
        """The vocabulary and its limits."""
        return pb.DescribeTokenizerResponse(
            model=self._name,
            vocabulary=self._tokenizer.fingerprint,
            vocabulary_size=self._tokenizer.vocabulary_size,
            context_length=self._tokenizer.context_length or 0,
            has_chat_template=self._tokenizer.has_chat_template,
            eos_token_ids=self._tokenizer.eos_token_ids,
            special_tokens=self._tokenizer.names,
            chat_template=self._tokenizer.template or "",
        )

    def _encode(self, request: pb.EncodeRequest) -> pb.EncodeResponse:
        return encode(self._tokenizer, request)

    def _encode_huge(self, request: pb.EncodeRequest) -> pb.EncodeResponse:
        try:
            return self._encode(request)
        finally:
            give_memory_back()

    def _decode(self, ids: list[int], keep_special: bool) -> str:
        try:
            return self._tokenizer.decode(ids, keep_special=keep_special)
        except TextError as error:
            raise InvalidRequest(str(error), param="ids") from None


def call_style(tokenizer: Tokenizer, wanted: str) -> CallStyle:
    """The format of the model's tool calls: ``wanted``, or for ``auto`` the one that `format_of` finds."""
    name = wanted
    if wanted == "auto":
        name = format_of(tokenizer.call_template, lambda text: tokenizer.added_token(text) is not None)
    silent = tokenizer.silent_ids(keep_special=False)
    marks = [(mark, tokenizer.added_token(mark)) for mark in FORMATS[name].marks]
    return CallStyle(name, tuple(Mark(mark, token, token in silent) for mark, token in marks if token is not None))


def _thoughts(tokenizer: Tokenizer, settings: TokenizerSettings) -> dict[str, Any] | None:
    """The marks of the model's thoughts, for the registry; None without any."""
    thought = marks_of(tokenizer, settings.reasoning, settings.reasoning_start, settings.reasoning_end)
    if thought is None:
        return None
    plain = None if thought.plain is None else _mark(thought.plain)
    return dict(msgspec.to_builtins(ThoughtStyle(_mark(thought.start), _mark(thought.end), plain)))


def _mark(mark: parameters.Mark) -> ThoughtMark:
    return ThoughtMark(mark.ids, mark.text)


def _ids(data: bytes) -> list[int]:
    try:
        return unpack_ids(data)
    except ValueError as error:
        raise InvalidRequest(str(error), param="ids") from None
