"""The tokenizer as a process, over gRPC."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import grpc
import pytest
from outrider.engine.text import Tokenizer
from outrider.mesh.bus import Bus
from outrider.mesh.registry import Member
from outrider.mesh.rpc import channel, close_channels
from outrider.v1 import tokenizer_pb2 as pb
from outrider.v1 import tokenizer_pb2_grpc as pb_grpc
from outrider.wire.ids import pack_ids, unpack_ids

from tests.engine.text.makers import CHATML, CORPUS, byte_level, write
from tests.processes import ServiceProcess, running
from tests.tokenizer.members import member_named

MESSAGES = [{"role": "user", "content": "def parse("}]


def _chat(messages: Any) -> pb.EncodeInput:
    return pb.EncodeInput(chat=pb.Chat(messages_json=json.dumps(messages), add_generation_prompt=True))


async def _refusal(call: Any) -> tuple[grpc.StatusCode, str, str]:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    trailing = dict(caught.value.trailing_metadata() or ())
    return caught.value.code(), caught.value.details() or "", str(trailing.get("outrider-param"))


async def test_the_registry_tells_what_it_serves(member: Member, local: Tokenizer) -> None:
    assert member.status["model"] == "small"
    assert member.status["vocabulary"] == local.fingerprint
    assert member.status["context_length"] == 512


async def test_texts_and_chats_are_encoded_in_one_batch(stub: Any, local: Tokenizer) -> None:
    inputs = [*(pb.EncodeInput(text=text) for text in CORPUS), _chat(MESSAGES)]
    response = await stub.Encode(pb.EncodeRequest(inputs=inputs))
    assert [unpack_ids(output.ids) for output in response.outputs] == [
        *(local.encode(text) for text in CORPUS),
        local.encode_chat(MESSAGES),
    ]


async def test_ids_are_decoded(stub: Any, local: Tokenizer) -> None:
    ids = [pack_ids(local.encode(text)) for text in CORPUS]
    assert list((await stub.Decode(pb.DecodeRequest(ids=ids))).texts) == CORPUS


async def test_it_describes_itself(stub: Any, local: Tokenizer) -> None:
    described = await stub.Describe(pb.DescribeTokenizerRequest())
    assert described == pb.DescribeTokenizerResponse(
        model="small",
        vocabulary=local.fingerprint,
        vocabulary_size=local.vocabulary_size,
        context_length=512,
        has_chat_template=True,
        eos_token_ids=[0, 2],
        chat_template=CHATML,
    )


async def test_a_text_over_the_context_is_refused_by_its_count(stub: Any, local: Tokenizer) -> None:
    text = "x = 1\n" * 400
    count = len(local.encode(text))
    status, details, param = await _refusal(stub.Encode(pb.EncodeRequest(inputs=[pb.EncodeInput(text=text)])))
    assert (status, param) == (grpc.StatusCode.INVALID_ARGUMENT, "prompt")
    assert details == f"prompt: {count} tokens are too many; this model's maximum context length is 512 tokens"


async def test_a_text_far_over_the_context_is_refused_before_it_is_tokenized(stub: Any, local: Tokenizer) -> None:
    text = "x = 1\n" * 2_000_000
    fewest = -(-len(text) // local.longest_token)
    refusal = await _refusal(stub.Encode(pb.EncodeRequest(inputs=[pb.EncodeInput(text=text)])))
    assert f"at least {fewest} tokens are too many" in refusal[1]
    chat = await _refusal(stub.Encode(pb.EncodeRequest(inputs=[_chat([{"role": "user", "content": text}])])))
    assert chat[2] == "messages"
    assert "at least" in chat[1]


async def test_huge_texts_are_encoded_in_turns_by_a_thread_of_lower_priority(
    stub: Any, service: ServiceProcess
) -> None:
    text, pid = "x = 1\n" * 50_000, service.pid
    huge = pb.EncodeRequest(inputs=[pb.EncodeInput(text=text)], max_tokens=len(text))
    alone, *others = await asyncio.gather(*(stub.Encode(huge) for _ in range(4)))
    assert all(other == alone for other in others)
    threads = [int(task) for task in os.listdir(f"/proc/{pid}/task")]
    usual = os.getpriority(os.PRIO_PROCESS, pid)
    assert sum(os.getpriority(os.PRIO_PROCESS, thread) > usual for thread in threads) == 1


async def test_an_input_with_a_name_is_refused_by_it_and_is_none_of_several_prompts(
    stub: Any, local: Tokenizer
) -> None:
    short, long = pb.EncodeInput(text="a", param="prediction"), pb.EncodeInput(text="x = 1\n" * 400, param="prediction")
    response = await stub.Encode(pb.EncodeRequest(inputs=[_chat(MESSAGES), short]))
    assert [unpack_ids(output.ids) for output in response.outputs] == [local.encode_chat(MESSAGES), local.encode("a")]
    for inputs, named in (
        ([_chat(MESSAGES), long], "prediction"),
        ([_chat([{"content": ""}]), short], "messages"),
        ([pb.EncodeInput(text=long.text), short], "prompt"),
        ([short, pb.EncodeInput(text="a"), pb.EncodeInput(text=long.text)], "prompt[2]"),
    ):
        _, details, param = await _refusal(stub.Encode(pb.EncodeRequest(inputs=inputs)))
        assert param == named
        assert details.startswith(named) or "template" in details


@pytest.mark.parametrize(
    ("item", "param", "why"),
    [
        (pb.EncodeInput(text="a", require_special=["<|nope|>"]), "prompt", "no special token '<|nope|>'"),
        (_chat([{"role": "user"}, 3]), "messages", "must be a JSON array of objects"),
        (pb.EncodeInput(chat=pb.Chat(messages_json="[{")), "messages", "messages is not valid JSON"),
        (pb.EncodeInput(chat=pb.Chat(messages_json="[]", tools_json="{}")), "tools", "tools must be a JSON array"),
        (_chat([{"content": ""}]), "messages", "the chat template refuses these messages"),
        (_chat([{"role": "user", "content": 7}]), "messages[0].content", "must be a string or an array of text parts"),
        (
            _chat([{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "[1]"}}]}]),
            "messages[0].tool_calls[0].function.arguments",
            "must be a JSON object, not an array",
        ),
    ],
)
async def test_a_bad_input_is_refused_by_name(stub: Any, item: pb.EncodeInput, param: str, why: str) -> None:
    status, details, named = await _refusal(stub.Encode(pb.EncodeRequest(inputs=[item])))
    assert (status, named) == (grpc.StatusCode.INVALID_ARGUMENT, param)
    assert why in details


async def test_a_template_that_never_ends_keeps_no_other_caller_waiting(
    shared_nats: str, bus: Bus, tmp_path: Path
) -> None:
    endless = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
    template = "{% if messages[0].content == 'bad' %}" + endless + "{% endif %}{{ messages[0].content }}"
    model = write(tmp_path, byte_level(), chat_template=template)
    name, bad, good = "tokenizer-endless", [{"role": "user", "content": "bad"}], [{"role": "user", "content": "good"}]
    with running("tokenizer", tmp_path / "log", nats_url=shared_nats, model=model, instance=name) as process:
        process.wait_ready()
        member = await member_named(bus, name)
        stub = pb_grpc.TokenizerStub(channel(member.address))
        waiting = asyncio.ensure_future(stub.Encode(pb.EncodeRequest(inputs=[_chat(bad)])))
        answered_beside = 0
        while not waiting.done():
            await stub.Encode(pb.EncodeRequest(inputs=[pb.EncodeInput(text="good")]))
            answered_beside += not waiting.done()
            await asyncio.sleep(0.1)
        assert answered_beside
        status, details, param = await _refusal(waiting)
        assert (status, param) == (grpc.StatusCode.INVALID_ARGUMENT, "messages")
        assert details == "the chat template takes more than 5 s of CPU time for these messages"
        expected = await stub.Encode(pb.EncodeRequest(inputs=[_chat(good)]))
        left = stub.Encode(pb.EncodeRequest(inputs=[_chat(bad)]))
        await stub.Encode(pb.EncodeRequest(inputs=[pb.EncodeInput(text="good")]))
        left.cancel()
        many = await asyncio.gather(*(stub.Encode(pb.EncodeRequest(inputs=[_chat(good)])) for _ in range(20)))
        assert many == [expected] * 20
        await close_channels()


def test_a_template_that_does_not_compile_is_told_in_one_sentence(shared_nats: str, tmp_path: Path) -> None:
    model, log = write(tmp_path, byte_level(), chat_template="{% if %}"), tmp_path / "log"
    with running("tokenizer", log, nats_url=shared_nats, model=model, log_level="error") as process:
        assert process.wait() == 2
    (line,) = log.read_text().splitlines()
    assert line.startswith(f"outrider tokenizer: {model}: the chat template does not compile: ")


@pytest.mark.parametrize(("ids", "why"), [(b"\x00\x00\x00\x7f", "outside the vocabulary"), (b"abc", "whole number")])
async def test_ids_that_are_none_are_refused(stub: Any, ids: bytes, why: str) -> None:
    status, details, param = await _refusal(stub.Decode(pb.DecodeRequest(ids=[ids])))
    assert (status, param) == (grpc.StatusCode.INVALID_ARGUMENT, "ids")
    assert why in details


def test_a_missing_model_is_told_in_one_sentence(shared_nats: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with running("tokenizer", log, nats_url=shared_nats, model=tmp_path / "nowhere", log_level="error") as process:
        assert process.wait() == 2
    assert log.read_text() == (
        f"outrider tokenizer: there is no model in {tmp_path}/nowhere; "
        "a name of the Hub is written org/repository[:file][@revision]\n"
    )
