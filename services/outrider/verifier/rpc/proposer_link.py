"""One stream to one proposer: what is to be sent to it, and the trees that come from it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field

import grpc
import torch
from outrider.engine.decode.outcome import CommittedStates
from outrider.engine.speculation import DraftTree, Proposal, Traits
from outrider.mesh.registry import Member
from outrider.mesh.telemetry import get_logger, timeline
from outrider.v1 import proposer_pb2 as pb
from outrider.wire.ids import pack_ids, unpack_floats, unpack_ids

_MOST_UNSENT = 4000
_UNSENT_BYTES = 12 << 10
"""Bytes of states that count as a commit, so that messages stay below what gRPC takes."""

_log = get_logger("drafting")


@dataclass(eq=False)
class Link:
    """One stream to one proposer: its numbers of ``sessions``, of ``resting`` sessions and of ``unsent`` commits.

    ``traits`` are those of its drafter.
    """

    member: Member
    drafter: str = ""
    traits: Traits = field(default_factory=Traits)
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

    def commit(self, number: int, length: int, tokens: list[int]) -> None:
        """Sends ``tokens`` that were decided after ``length`` others."""
        self.outgoing.commits.add(session=number, length=length, tokens=pack_ids(tokens))
        self._sent(1)

    def show(self, committed: CommittedStates) -> None:
        """Sends the states that the drafter needs, if it needs some."""
        if self.traits.layers:
            states = committed.states.of(self.traits.layers).to(torch.bfloat16).contiguous()
            data = states.view(torch.uint8).cpu().numpy().tobytes()
            self.outgoing.states.add(session=committed.number, start=committed.start, states=data)
            self._sent(1 + len(data) // _UNSENT_BYTES)

    def _sent(self, commits: int) -> None:
        """Ends the call if too much is unsent."""
        self.unsent += commits
        self.news.set()
        if self.unsent > _MOST_UNSENT and self.call is not None:
            self.call.cancel()

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


def needs(links: list[Link]) -> Traits:
    """What the proposers of one drafter need together."""
    layers = sorted({layer for link in links for layer in link.traits.layers})
    return Traits(layers=tuple(layers), whole=any(link.traits.whole for link in links))


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
