"""One stream to one proposer: what is to be sent to it, and the trees that come from it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field

import grpc
from outrider.engine.speculation import DraftTree, Proposal
from outrider.mesh.registry import Member
from outrider.mesh.telemetry import get_logger, timeline
from outrider.v1 import proposer_pb2 as pb
from outrider.wire.ids import unpack_floats, unpack_ids

_log = get_logger("drafting")


@dataclass(eq=False)
class Link:
    """One stream to one proposer: its numbers of ``sessions``, of ``resting`` sessions and of ``unsent`` commits."""

    member: Member
    drafter: str = ""
    sessions: int = 0
    resting: int = 0
    unsent: int = 0
    call: grpc.aio.StreamStreamCall | None = None
    outgoing: pb.DraftRequest = field(default_factory=pb.DraftRequest)
    news: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def ready(self) -> bool:
        """Whether the proposer has sent its hello."""
        return bool(self.drafter)

    def take(self) -> pb.DraftRequest:
        """Returns everything to send, as one message."""
        message, self.outgoing, self.unsent = self.outgoing, pb.DraftRequest(), 0
        self.news.clear()
        return message

    async def write(self, call: grpc.aio.StreamStreamCall, hello: pb.VerifierHello) -> None:
        """Sends ``hello``, and then everything that is to be sent, until the call ends."""
        with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
            await call.write(pb.DraftRequest(hello=hello))
            while True:
                await self.news.wait()
                message = self.take()
                if (events := timeline()) is not None:
                    events.message("opens", False, [(item.session, len(item.tokens) // 4) for item in message.opens])
                    events.message("commits", False, [_end_of(commit) for commit in message.commits])
                await call.write(message)


def _end_of(commit: pb.CommitTokens) -> tuple[int, int]:
    return commit.session, commit.length + len(commit.tokens) // 4


def trees_of(response: pb.DraftResponse, drafter: str) -> Iterator[tuple[int, DraftTree]]:
    """The trees of a message by session; drops malformed trees."""
    for tree in response.trees:
        try:
            yield (
                tree.session,
                DraftTree(
                    tree.length,
                    unpack_ids(tree.tokens),
                    unpack_ids(tree.parents),
                    unpack_floats(tree.confidences),
                    drafter,
                    {
                        q.node: Proposal(unpack_ids(q.tokens), unpack_floats(q.probabilities), q.replacement)
                        for q in tree.proposals
                    },
                ),
            )
        except ValueError as error:
            _log.warning("malformed tree dropped", drafter=drafter, reason=str(error))
