"""Images, audio and files in prompts are refused by their names, in one sentence, at every API."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.micro.request import Request
from outrider.gateway.api.anthropic.body import read_messages
from outrider.gateway.api.grpc.requests import read_generation
from outrider.gateway.api.nats.queries import read_generate
from outrider.gateway.api.openai.bodies import read_chat
from outrider.gateway.api.responses.items import Thoughts, messages
from outrider.gateway.api.schema.thoughts import Seal
from outrider.mesh.bus import Query
from outrider.mesh.errors import InvalidRequest
from outrider.v1 import inference_pb2 as pb
from outrider.wire import subjects

SEAL = Seal()
TEXT = {"type": "text", "text": "a"}
PARTS: list[dict[str, Any]] = [
    {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}},
    {"type": "input_image", "image_url": "data:image/png;base64,aGk="},
    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}},
    {"type": "input_audio", "input_audio": {"data": "aGk=", "format": "wav"}},
    {"type": "audio", "audio": {}},
    {"type": "video_url", "video_url": {"url": "https://example.com/a.mp4"}},
    {"type": "file", "file": {"file_id": "file-1"}},
    {"type": "input_file", "file_id": "file-1"},
    {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "a"}},
]


def _chat(said: Any) -> None:
    read_chat({"model": "m", "messages": said}).generation()


def _responses(said: Any) -> None:
    messages(json.loads(json.dumps(said).replace('"text", "text"', '"input_text", "text"')), Thoughts(SEAL, "t", []))


def _messages_api(said: Any) -> None:
    body = {"model": "m", "max_tokens": 5, "messages": said}
    read_messages(json.dumps(body).encode(), []).chat(SEAL, "t", [])


def _grpc(said: Any) -> None:
    read_generation(pb.GenerateRequest(messages_json=json.dumps(said)), 1 << 20)


def _nats(said: Any) -> None:
    message = Msg(Client(), subjects.GENERATE, data=json.dumps({"messages": said}).encode())
    read_generate(Query(Request(message)), "t", 1 << 20, [])


APIS: list[Callable[[Any], None]] = [_chat, _responses, _messages_api, _grpc, _nats]


@pytest.mark.parametrize("part", PARTS, ids=[part["type"] for part in PARTS])
@pytest.mark.parametrize("api", APIS)
def test_what_is_not_text_is_refused_by_its_name(api: Callable[[Any], None], part: dict[str, Any]) -> None:
    api([{"role": "user", "content": [TEXT]}])
    with pytest.raises(InvalidRequest) as refused:
        api([{"role": "user", "content": "a"}, {"role": "user", "content": [TEXT, part]}])
    place = "input[1]" if api is _responses else "messages[1]"
    why = f"is {part['type']}: models here read text, no images, audio or files"
    assert refused.value.message == f"{place}.content[1].type {why}"
    assert refused.value.param == f"{place}.content[1].type"


def test_an_image_among_items_and_in_results_of_calls_is_refused_as_well() -> None:
    image = PARTS[1]
    for item, place in (
        (image, "input[0].type"),
        ({"type": "function_call_output", "call_id": "c", "output": [image]}, "input[0].output[0].type"),
    ):
        with pytest.raises(InvalidRequest, match="is input_image: models here read text") as refused:
            messages([item], Thoughts(SEAL, "t", []))
        assert refused.value.param == place
    with pytest.raises(InvalidRequest, match=r"^messages\[0\].content\[0\].content\[0\].type is image: models"):
        _messages_api(
            [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": [PARTS[2]]}]}]
        )
