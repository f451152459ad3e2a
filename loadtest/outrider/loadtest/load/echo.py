"""An engine that answers at once, `python -m outrider.loadtest.load.echo`, to measure the services in front of it.

The echo is a verifier with the model and vocabulary of the first tokenizer in the registry. It also serves plain OpenAI
over HTTP, for other proxies. Every answer is the same token ``max_tokens`` times.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import nullcontext
from typing import Annotated, Any, ClassVar

import grpc
import uvicorn
from msgspec import Meta
from outrider.loadtest.load.echo_http import TEXT, app
from outrider.mesh.config import Settings
from outrider.mesh.config.settings import Port
from outrider.mesh.errors import NotFound
from outrider.mesh.registry import Member
from outrider.mesh.service import Mesh, Service, run
from outrider.v1 import verifier_pb2 as pb
from outrider.v1 import verifier_pb2_grpc as pb_grpc
from outrider.wire.frames import Finish, Frame, Usage, encode_frame, encode_tagged, token_subject

_TOKEN = 1
_KEPT = 1024
_KEEP_ALIVE_S = 75
_TOKENIZER_S = 60.0


class EchoSettings(Settings, kw_only=True, frozen=True):
    """Settings of the echo."""

    http_port: Annotated[Port, Meta(description="port of plain OpenAI over HTTP")] = 0


class EchoService(Service, pb_grpc.VerifierServicer):
    """A verifier that answers every request at once, without a model."""

    kind: ClassVar[str] = "verifier"
    follows: ClassVar[tuple[str, ...]] = ("tokenizer",)
    settings: ClassVar[type[Settings]] = EchoSettings

    def __init__(self, settings: EchoSettings) -> None:
        self._settings = settings
        self._kept: OrderedDict[str, list[bytes]] = OrderedDict()

    async def start(self, mesh: Mesh) -> None:
        """Takes the model's name from the first tokenizer, and listens."""
        self._mesh = mesh
        tokenizers = await mesh.registry.wait_for("tokenizer", bool, _TOKENIZER_S)
        self._tokenizer: Member = tokenizers[0]
        pb_grpc.add_VerifierServicer_to_server(self, mesh.rpc)
        config = uvicorn.Config(
            app,
            port=self._settings.http_port,
            loop="none",
            http="httptools",
            log_config=None,
            access_log=False,
            timeout_keep_alive=_KEEP_ALIVE_S,
        )
        self._http = uvicorn.Server(config)
        self._http.capture_signals = nullcontext  # type: ignore[method-assign,assignment] # the lifecycle handles signals
        mesh.tasks.spawn(self._http.serve(), "http server")

    def status(self) -> dict[str, Any]:
        """The status by which gateways choose verifiers."""
        status = self._tokenizer.status
        return {name: status[name] for name in ("model", "vocabulary", "context_length")} | {
            "load": 0,
            "batches": True,
            "determinism": "strict",
            "lossy": False,
        }

    async def stop(self) -> None:
        """Stops listening."""
        self._http.should_exit = self._http.force_exit = True

    async def Submit(self, message: pb.SubmitRequest, context: grpc.aio.ServicerContext) -> pb.SubmitResponse:  # noqa: N802
        """Publishes the whole answer, a frame for each token."""
        subject = token_subject(message.tenant, message.request_id, unfiltered=message.filtered)
        frames = self._frames(message)
        self._kept[message.request_id] = frames
        if len(self._kept) > _KEPT:
            self._kept.popitem(last=False)
        if message.reader:
            for batch in encode_tagged([(message.tag, frame) for frame in frames]):
                self._mesh.bus.publish(message.reader, batch)
        if message.stream_id or not message.reader:
            for frame in frames:
                self._mesh.bus.publish(subject, frame)
        return pb.SubmitResponse(instance=self._mesh.instance)

    async def Cancel(self, message: pb.CancelRequest, context: grpc.aio.ServicerContext) -> pb.CancelResponse:  # noqa: N802
        """Cancels nothing: the request has ended already."""
        return pb.CancelResponse(cancelled=False)

    async def Renew(self, message: pb.RenewRequest, context: grpc.aio.ServicerContext) -> pb.RenewResponse:  # noqa: N802
        """Renews nothing: answers have no lease."""
        return pb.RenewResponse()

    async def Follow(  # noqa: N802
        self, message: pb.FollowRequest, context: grpc.aio.ServicerContext
    ) -> AsyncIterator[pb.FollowResponse]:
        """Sends the frames again, from ``from_index``."""
        if message.request_id not in self._kept:
            raise NotFound(f"request {message.request_id} is not known here", param="request_id")
        for frame in self._kept[message.request_id][message.from_index :]:
            yield pb.FollowResponse(frame=frame)

    async def Describe(self, message: pb.DescribeRequest, context: grpc.aio.ServicerContext) -> pb.DescribeResponse:  # noqa: N802
        """The tokenizer's model."""
        status = self._tokenizer.status
        return pb.DescribeResponse(
            model=status["model"], vocabulary=status["vocabulary"], context_length=status["context_length"] or 0
        )

    def _frames(self, message: pb.SubmitRequest) -> list[bytes]:
        """Frames after the tokens that another verifier has emitted."""
        count, emitted = message.sampling.max_tokens, len(message.emitted) // 4
        usage = Usage(len(message.prompt) // 4, count - emitted, steps=count - emitted, emitted=emitted)
        return [
            encode_frame(
                Frame(message.request_id, index, [_TOKEN], [TEXT], [""])
                if index < count - 1
                else Frame(
                    message.request_id,
                    index,
                    [_TOKEN],
                    [TEXT],
                    [""],
                    Finish.LENGTH,
                    usage,
                    verifier=self._mesh.instance,
                )
            )
            for index in range(emitted, count)
        ]


if __name__ == "__main__":
    run(EchoService)
