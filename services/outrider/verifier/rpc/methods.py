"""The verifier's gRPC methods."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import replace

import grpc
from outrider.engine.target import Target
from outrider.mesh.errors import NotFound, Unavailable
from outrider.mesh.telemetry import get_logger, kept_span
from outrider.v1 import verifier_pb2 as pb
from outrider.v1 import verifier_pb2_grpc as pb_grpc
from outrider.verifier.grammars.grammar_compiler import Compiler
from outrider.verifier.pages.announcements import PageAnnouncer
from outrider.verifier.requests.conversion import check, lease_seconds, request_from_proto
from outrider.verifier.rpc.frame_log import FrameLog, Reader, StreamEntry
from outrider.verifier.rpc.leases import Leases
from outrider.verifier.rpc.submissions import Submissions
from outrider.verifier.tracing.trace import RequestTrace

_INT32 = (1 << 31) - 1

_log = get_logger("verifier")


class Methods(pb_grpc.VerifierServicer):
    """Answers calls from the engine, the log of frames and the leases.

    Args:
        instance: the verifier's name in the registry.
        target: the target.
        describe: makes the response of `Describe`.
        submissions: passes requests to the engine.
        compiler: compiles grammars.
        log: frames of requests.
        leases: leases of requests.
        pages: announces pages.
    """

    def __init__(
        self,
        instance: str,
        target: Target,
        describe: Callable[[], pb.DescribeResponse],
        submissions: Submissions,
        compiler: Compiler,
        log: FrameLog,
        leases: Leases,
        pages: PageAnnouncer,
    ) -> None:
        self._instance, self._target, self._describe = instance, target, describe
        self._submissions, self._compiler = submissions, compiler
        self._log, self._leases, self._pages = log, leases, pages
        self._draining = False

    def drain(self) -> None:
        """Refuses new requests."""
        self._draining = True

    async def Submit(self, message: pb.SubmitRequest, context: grpc.aio.ServicerContext) -> pb.SubmitResponse:  # noqa: N802
        """Queues a request."""
        now = self._target.scheduler.now()
        request, lease_s = request_from_proto(message, self._target.model_limits, now), lease_seconds(message)
        if (source := request.parameters.grammar) is not None:
            request = replace(request, grammar=await self._compiler.compile(source, message.tenant))
        if (thought := request.parameters.thought) is not None:
            request = replace(request, thinking=self._target.tracker(thought))
        if self._draining:
            raise Unavailable("this verifier is draining")
        if (span := kept_span()) is not None:
            request = replace(request, trace=RequestTrace(span))
        entry = StreamEntry.of(message) if message.stream_id else None
        place = await self._submissions.submit(request, lease_s, entry, Reader.of(message))
        expected_ms = min(round(place.first_s * 1e3), _INT32)
        return pb.SubmitResponse(queued_ahead=place.ahead, instance=self._instance, expected_ttft_ms=expected_ms)

    async def Cancel(self, message: pb.CancelRequest, context: grpc.aio.ServicerContext) -> pb.CancelResponse:  # noqa: N802
        """Cancels a request."""
        if message.forget:
            self._log.drop_entry(message.request_id)
        return pb.CancelResponse(cancelled=await self._submissions.cancel(message.request_id, message.reason or None))

    async def Renew(self, message: pb.RenewRequest, context: grpc.aio.ServicerContext) -> pb.RenewResponse:  # noqa: N802
        """Renews leases, and notes the requests that gateways have recorded."""
        check(message.lease_ms >= 1, "lease_ms", f"must be at least 1, not {message.lease_ms}")
        self._leases.renew(message.request_ids, message.lease_ms / 1e3)
        for request in message.recorded:
            self._log.record(request)
        return pb.RenewResponse()

    async def Follow(  # noqa: N802
        self, message: pb.FollowRequest, context: grpc.aio.ServicerContext
    ) -> AsyncIterator[pb.FollowResponse]:
        """Streams frames without the broker, with heartbeats in between if the caller asks for them."""
        name, heartbeat_s = message.request_id, message.heartbeat_ms / 1e3
        check(heartbeat_s >= 0, "heartbeat_ms", f"must be at least 0, not {message.heartbeat_ms}")
        try:
            if message.so_far:
                for frame in self._log.so_far(name, message.from_index):
                    yield pb.FollowResponse(frame=frame)
                return
            async for next_frame in self._log.follow(name, message.from_index, heartbeat_s or None):
                if next_frame is not None:
                    yield pb.FollowResponse(frame=next_frame)
                elif await self._submissions.holds(name):
                    yield pb.FollowResponse(held=True)
                elif self._log.running(name):
                    _log.error("a request has a log but is not in the engine", request=name)
                    self._log.discard(name)
        except KeyError:
            raise NotFound(f"request {name} is not known here", param="request_id") from None

    async def Recall(self, message: pb.RecallRequest, context: grpc.aio.ServicerContext) -> pb.RecallResponse:  # noqa: N802
        """The entries of a stream's requests."""
        recalled = pb.RecallResponse()
        for data, running in self._log.entries(message.tenant, message.stream_id):
            request = recalled.requests.add()
            request.ParseFromString(data)
            request.running = running
        return recalled

    async def Pages(self, message: pb.PagesRequest, context: grpc.aio.ServicerContext) -> pb.PagesResponse:  # noqa: N802
        """The verifier's pages."""
        return await self._pages.list_pages(message.epoch)

    async def Describe(self, message: pb.DescribeRequest, context: grpc.aio.ServicerContext) -> pb.DescribeResponse:  # noqa: N802
        """The model and its limits."""
        return self._describe()
