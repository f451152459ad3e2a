"""Converts prompts to token ids and back, with any tokenizer that answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from google.protobuf.message import Message
from outrider.gateway.request.generation import Messages, Prompt, Text, Tokens
from outrider.gateway.request.models import Models, ServedModel
from outrider.mesh.attempts import TRANSIENT
from outrider.mesh.errors import InvalidRequest, OutriderError, Unavailable
from outrider.mesh.rpc import call, stub
from outrider.v1 import tokenizer_pb2 as pb
from outrider.v1.tokenizer_pb2_grpc import TokenizerStub
from outrider.wire.ids import pack_ids, unpack_ids

_ENCODE_S = 30.0


class Encoder:
    """Encodes and decodes with the tokenizers that the registry knows."""

    def __init__(self, models: Models) -> None:
        self._models = models

    async def encode(self, served: ServedModel, prompt: Prompt) -> list[int]:
        """Token ids of ``prompt``; raises `InvalidRequest` if a tokenizer refuses it, `Unavailable` if none answers."""
        return (await self.encode_all(served, [prompt]))[0]

    async def encode_all(self, served: ServedModel, prompts: Sequence[Prompt], most: int = 0) -> list[list[int]]:
        """Token ids of each of ``prompts``, as `encode`, with one call at most.

        A text has at most ``most`` tokens; 0 is the model's context.
        """
        texts = [_input(prompt) for prompt in prompts if not isinstance(prompt, Tokens)]
        encoded = iter(await self._ask(served, texts, most) if texts else [])
        return [prompt.ids if isinstance(prompt, Tokens) else next(encoded) for prompt in prompts]

    async def encode_words(self, served: ServedModel, words: Sequence[str]) -> list[tuple[int, ...]]:
        """Token ids of each word, at a text's beginning and after a space, without repeats."""
        forms = dict.fromkeys(form for word in words for form in (word, " " + word.lstrip()))
        encoded = await self._ask(served, [pb.EncodeInput(text=form) for form in forms])
        return [ids for ids in dict.fromkeys(map(tuple, encoded)) if ids]

    async def decode(self, served: ServedModel, ids: Sequence[int], *, keep_special: bool) -> str:
        """The text of ``ids``, with special tokens if ``keep_special``; raises as `encode`."""
        try:
            request = pb.DecodeRequest(ids=[pack_ids(ids)], keep_special=keep_special)
        except OverflowError:
            raise InvalidRequest("tokens must be token ids", param="tokens") from None
        response: pb.DecodeResponse = await self._call(served, lambda tokenizer: tokenizer.Decode, request)
        return str(response.texts[0])

    async def describe(self, served: ServedModel) -> pb.DescribeTokenizerResponse:
        """What the tokenizer says of itself; raises as `encode`."""
        request = pb.DescribeTokenizerRequest()
        described: pb.DescribeTokenizerResponse = await self._call(served, lambda each: each.Describe, request)
        return described

    async def _ask(self, served: ServedModel, inputs: list[pb.EncodeInput], most: int = 0) -> list[list[int]]:
        request = pb.EncodeRequest(inputs=inputs, max_tokens=most)
        response: pb.EncodeResponse = await self._call(served, lambda tokenizer: tokenizer.Encode, request)
        return [unpack_ids(output.ids) for output in response.outputs]

    async def _call(self, served: ServedModel, method: Callable[[TokenizerStub], Any], request: Message) -> Any:
        """The response of the first tokenizer that answers."""
        failure: OutriderError = Unavailable(f"no tokenizer is ready for the model {served.name!r}", retry_after=1.0)
        for member in self._models.tokenizers(served):
            try:
                tokenizer = stub(TokenizerStub, member.address, "tokenizer", shared=True)
                return await call(method(tokenizer), request, _ENCODE_S)
            except TRANSIENT as error:
                failure = error
        raise failure


def _input(prompt: Text | Messages) -> pb.EncodeInput:
    if isinstance(prompt, Messages):
        chat = pb.Chat(messages_json=prompt.json, tools_json=prompt.tools, add_generation_prompt=prompt.answering)
        chat.template_kwargs_json, chat.template = prompt.variables, prompt.template
        chat.continue_final_message = prompt.continuing
        return pb.EncodeInput(chat=chat)
    parse = prompt.parse_special is not False
    return pb.EncodeInput(
        text=prompt.text,
        add_special=prompt.add_special,
        parse_special=parse,
        param=prompt.param,
        suffix=prompt.suffix,
        files=[pb.EncodeInput.File(name=file.filename, text=file.text) for file in prompt.files],
    )
