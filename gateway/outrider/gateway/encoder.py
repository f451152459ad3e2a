"""Prompts to token ids, by whichever tokenizer answers."""

from __future__ import annotations

from collections.abc import Sequence

import grpc
from outrider.gateway.attempts import TRANSIENT
from outrider.gateway.models import Models, Served
from outrider.gateway.request import Messages, Prompt, Text, Tokens
from outrider.mesh.errors import Unavailable, from_rpc
from outrider.mesh.rpc import channel
from outrider.v1 import tokenizer_pb2 as pb
from outrider.v1 import tokenizer_pb2_grpc as pb_grpc
from outrider.wire.ids import unpack_ids

_ENCODE_S = 30.0


class Encoder:
    """Encodes with the tokenizers that the registry knows."""

    def __init__(self, models: Models) -> None:
        self._models = models

    async def encode(self, served: Served, prompt: Prompt) -> list[int]:
        """Ids of ``prompt``; `InvalidRequest` when the tokenizer refuses it, `Unavailable` when none answers."""
        if isinstance(prompt, Tokens):
            return prompt.ids
        return (await self._ask(served, [_input(prompt)]))[0]

    async def encode_words(self, served: Served, words: Sequence[str]) -> list[list[int]]:
        """Ids of each word, at a text's beginning and after a space, as often as they differ."""
        forms = dict.fromkeys(form for word in words for form in (word, " " + word.lstrip()))
        found = await self._ask(served, [pb.EncodeInput(text=form) for form in forms])
        return [list(ids) for ids in dict.fromkeys(map(tuple, found)) if ids]

    async def _ask(self, served: Served, inputs: list[pb.EncodeInput]) -> list[list[int]]:
        failure: Exception = Unavailable(f"no tokenizer is ready for the model {served.name!r}", retry_after=1.0)
        for member in self._models.tokenizers(served):
            try:
                stub = pb_grpc.TokenizerStub(channel(member.address))
                response = await stub.Encode(pb.EncodeRequest(inputs=inputs), timeout=_ENCODE_S)
                return [unpack_ids(output.ids) for output in response.outputs]
            except grpc.aio.AioRpcError as error:
                failure = from_rpc(error)
                if not isinstance(failure, TRANSIENT):
                    break
        raise failure


def _input(prompt: Text | Messages) -> pb.EncodeInput:
    if isinstance(prompt, Messages):
        chat = pb.Chat(messages_json=prompt.json, tools_json=prompt.tools, add_generation_prompt=True)
        return pb.EncodeInput(chat=chat)
    return pb.EncodeInput(text=prompt.text, add_special=True)
