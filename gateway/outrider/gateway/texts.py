"""Texts to token ids and back, for callers who want no more than that."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import grpc
from outrider.gateway.attempts import TRANSIENT
from outrider.gateway.models import Models, Served
from outrider.gateway.request import Messages, Text
from outrider.mesh.errors import InvalidRequest, Unavailable, from_rpc
from outrider.mesh.rpc import channel
from outrider.v1 import tokenizer_pb2 as pb
from outrider.v1.tokenizer_pb2_grpc import TokenizerStub
from outrider.wire.ids import pack_ids, unpack_ids

_CALL_S = 30.0

T = TypeVar("T")


class Texts:
    """Asks the tokenizers that the registry knows; `InvalidRequest` for what they refuse, `Unavailable` without any."""

    def __init__(self, models: Models) -> None:
        self._models = models

    async def tokenize(self, served: Served, prompt: Text | Messages, *, add_special: bool) -> list[int]:
        """Ids of a text, or of a chat with an open answer."""
        if isinstance(prompt, Messages):
            chat = pb.Chat(messages_json=prompt.json, tools_json=prompt.tools, add_generation_prompt=True)
            item = pb.EncodeInput(chat=chat)
        else:
            item = pb.EncodeInput(text=prompt.text, add_special=add_special)
        request = pb.EncodeRequest(inputs=[item])
        response = await self._ask(served, lambda stub: stub.Encode(request, timeout=_CALL_S))
        return unpack_ids(response.outputs[0].ids)

    async def detokenize(self, served: Served, tokens: Sequence[int], *, keep_special: bool) -> str:
        """The text of ids."""
        try:
            request = pb.DecodeRequest(ids=[pack_ids(tokens)], keep_special=keep_special)
        except OverflowError:
            raise InvalidRequest("tokens must be token ids", param="tokens") from None
        response = await self._ask(served, lambda stub: stub.Decode(request, timeout=_CALL_S))
        return str(response.texts[0])

    async def _ask(self, served: Served, call: Callable[[TokenizerStub], Awaitable[T]]) -> T:
        failure: Exception = Unavailable(f"no tokenizer is ready for the model {served.name!r}", retry_after=1.0)
        for member in self._models.tokenizers(served):
            try:
                return await call(TokenizerStub(channel(member.address)))
            except grpc.aio.AioRpcError as error:
                failure = from_rpc(error)
                if not isinstance(failure, TRANSIENT):
                    break
        raise failure
