"""Remote drafting: links to proposers, which never delay a step.

A link carries the engine's decisions to a proposer and the proposer's trees to the engine. Each sequence is a session
on one proposer of each drafter. When a proposer leaves, its sessions move to another proposer of the same drafter, or
wait for one to join.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

import grpc
from outrider.engine.decode.outcome import CommittedStates, CommittedTokens, OpenedSequence, Outcome
from outrider.engine.requests.sequence import Request
from outrider.engine.speculation import DraftTree, Traits
from outrider.mesh import rpc
from outrider.mesh.registry import Member, Registry, State
from outrider.mesh.tasks import Tasks
from outrider.mesh.telemetry import get_logger, timeline, traceparent
from outrider.v1 import proposer_pb2 as pb
from outrider.v1.proposer_pb2_grpc import ProposerStub
from outrider.verifier.requests.conversion import sampling_to_proto
from outrider.verifier.rpc.proposer_link import Link, needs, trees_of
from outrider.wire.ids import pack_ids
from outrider.wire.residency import may_hold

Offer = Callable[[list[tuple[int, DraftTree]], str], None]

_RETRY_S = 0.5

_log = get_logger("drafting")


@dataclass(slots=True)
class _Session:
    """A sequence at proposers; ``resting`` maps each paused drafter to the number of tokens sent to it."""

    opened: OpenedSequence
    tokens: list[int]
    links: dict[str, Link] = field(default_factory=dict)
    resting: dict[str, int] = field(default_factory=dict)


class RemoteDrafting:
    """Keeps a link to every ready proposer of the same vocabulary, and sessions over these links.

    Args:
        instance: this verifier's name in the registry.
        vocabulary: fingerprint that proposers must share.
        registry: registry of proposers.
        tasks: runs the links.
        offer: called in the event loop with the trees of one message and the name of their source.
        joined: called in the event loop with the drafter's name when a proposer joins.
        working: called in the event loop with True when a first proposer guesses, with False when the last one stops.
        seeing: called in the event loop with the drafters that need states of the target, by name, when these change.
        last_layer: the last states that the target has (see `outrider.engine.speculation.Traits`).
    """

    def __init__(
        self,
        instance: str,
        vocabulary: str,
        registry: Registry,
        tasks: Tasks,
        offer: Offer,
        joined: Callable[[str], None] = lambda drafter: None,
        working: Callable[[bool], None] = lambda works: None,
        seeing: Callable[[dict[str, Traits]], None] = lambda traits: None,
        last_layer: int = 0,
    ) -> None:
        self._hello = pb.VerifierHello(instance=instance, vocabulary=vocabulary)
        self._vocabulary, self._registry = vocabulary, registry
        self._spawn, self._offer, self._joined = tasks.spawn, offer, joined
        self._working, self._has_worked = working, False
        self._seeing, self._last_layer = seeing, last_layer
        self._sessions: dict[int, _Session] = {}
        self._links: dict[str, Link] = {}
        self._paused: frozenset[str] = frozenset()
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def start(self) -> None:
        """Starts to follow the registry and to link to proposers."""
        self._registry.on_change("proposer", self._on_members)
        self._on_members(self._registry.members("proposer"))

    async def stop(self) -> None:
        """Closes all links."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    @property
    def drafters(self) -> set[str]:
        """Names of the drafters with a ready link."""
        return {link.drafter for link in self._links.values() if link.ready}

    def send(self, outcome: Outcome) -> None:
        """Sends the outcome of a step to proposers."""
        self._pause(outcome.paused)
        for opened in outcome.opened:
            self._sessions[opened.number] = session = _Session(opened, list(opened.opening.tokens))
            self._place(session)
        for committed in outcome.committed:
            self._commit(committed)
        for states in outcome.states:
            self._show(states)
        for number in outcome.closed:
            if (closed := self._sessions.pop(number, None)) is not None:
                for drafter, link in closed.links.items():
                    self._close(number, link, drafter in closed.resting)
        self._note_work()

    def _note_work(self) -> None:
        works = any(link.sessions > link.resting for link in self._links.values())
        if works != self._has_worked:
            self._has_worked = works
            self._working(works)

    def _pause(self, paused: frozenset[str]) -> None:
        """Pauses the sessions of ``paused`` drafters, and resumes the sessions of all others.

        A paused session keeps the keys and values of its prompt, which are expensive to compute again.
        """
        if paused == self._paused:
            return
        self._paused = paused
        for number, session in self._sessions.items():
            for drafter in paused & session.links.keys() - session.resting.keys():
                self._pause_session(number, session, session.links[drafter])
            for drafter in session.resting.keys() - paused:
                self._resume(number, session, session.links[drafter])
            self._place(session)

    def _pause_session(self, number: int, session: _Session, link: Link) -> None:
        session.resting[link.drafter] = len(session.tokens)
        link.resting += 1
        link.outgoing.rests.append(number)
        link.news.set()

    def _resume(self, number: int, session: _Session, link: Link) -> None:
        """Sends the tokens decided during a session's pause. If there are none, the next commit ends the pause."""
        length = session.resting.pop(link.drafter)
        link.resting -= 1
        if number in link.outgoing.rests:
            link.outgoing.rests.remove(number)
        if length < len(session.tokens):
            link.commit(number, length, session.tokens[length:])

    def _close(self, number: int, link: Link, resting: bool) -> None:
        link.sessions -= 1
        link.resting -= resting
        link.outgoing.closes.append(number)
        link.news.set()

    def _commit(self, committed: CommittedTokens) -> None:
        session = self._sessions.get(committed.number)
        if session is None:
            return
        session.tokens.extend(committed.tokens)
        for drafter, link in session.links.items():
            resting = drafter in session.resting
            if not resting or link.traits.layers:
                link.commit(committed.number, committed.length, committed.tokens)
            if resting and link.traits.layers:
                session.resting[drafter] = len(session.tokens)
                if committed.number not in link.outgoing.rests:
                    link.outgoing.rests.append(committed.number)

    def _show(self, committed: CommittedStates) -> None:
        """Sends states, also of paused sessions: they would be missing later."""
        if (session := self._sessions.get(committed.number)) is not None:
            for link in session.links.values():
                link.show(committed)

    def _place(self, session: _Session) -> None:
        """Opens the session at the least loaded proposer of each drafter that the session lacks."""
        admitted = session.opened.request.drafters
        for drafter in self.drafters - session.links.keys() - self._paused:
            if admitted is None or drafter in admitted:
                links = [link for link in self._links.values() if _fits(link, drafter, session)]
                if links:
                    self._open(session, min(links, key=lambda link: link.sessions))

    def _open(self, session: _Session, link: Link) -> None:
        session.links[link.drafter] = link
        link.sessions += 1
        opening = session.opened.opening
        link.outgoing.opens.add(
            session=session.opened.number,
            tokens=pack_ids(session.tokens),
            sampling=sampling_to_proto(opening.sampling),
            max_nodes=opening.max_nodes,
            tenant=opening.tenant,
            prompt=opening.prompt,
            proposes=opening.proposes,
            replacement=opening.replacement,
            private=opening.private,
            traceparent=_traceparent(session.opened.request),
        )
        link.news.set()

    def _on_members(self, members: list[Member]) -> None:
        for member in members:
            fits = member.status.get("vocabulary") == self._vocabulary and member.state is State.READY
            if fits and member.instance not in self._tasks:
                self._tasks[member.instance] = self._spawn(self._serve(member), f"link to {member.instance}")

    def _ready(self, member: Member) -> bool:
        members = self._registry.members("proposer")
        return any(other.instance == member.instance and other.state is State.READY for other in members)

    async def _serve(self, member: Member) -> None:
        try:
            while self._ready(member):
                await self._attempt(member)
                await asyncio.sleep(_RETRY_S)
        finally:
            del self._tasks[member.instance]

    async def _attempt(self, member: Member) -> None:
        link = Link(member)
        call = link.call = ProposerStub(rpc.channel(member.address, "proposer")).Draft()
        writer = asyncio.create_task(link.write(call, self._hello))
        try:
            async for response in call:
                self._receive(link, response)
        except grpc.aio.AioRpcError as error:
            _log.warning("proposer lost", proposer=member.instance, reason=error.code().name)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
        finally:
            writer.cancel()
            call.cancel()
            self._drop_link(link)

    def _receive(self, link: Link, response: pb.DraftResponse) -> None:
        if response.HasField("hello"):
            traits = Traits(layers=tuple(response.hello.layers), whole=response.hello.whole)
            if traits.layers and max(traits.layers) > self._last_layer:
                _log.warning("proposer not used", proposer=link.member.instance, layers=list(traits.layers))
                return
            link.drafter, link.traits = response.hello.drafter, traits
            self._links[link.member.instance] = link
            self._joined(link.drafter)
            self._note_seeing(link)
            _log.info("proposer joined", proposer=link.member.instance, drafter=link.drafter)
            for session in self._sessions.values():
                self._place(session)
        if (events := timeline()) is not None:
            events.message("trees", True, [(tree.session, tree.length) for tree in response.trees])
        self._offer(list(trees_of(response, link.drafter)), link.member.instance)

    def _note_seeing(self, changed: Link) -> None:
        if changed.traits.layers:
            seeing: dict[str, list[Link]] = {}
            for link in self._links.values():
                if link.traits.layers:
                    seeing.setdefault(link.drafter, []).append(link)
            self._seeing({drafter: needs(links) for drafter, links in seeing.items()})

    def _drop_link(self, link: Link) -> None:
        if self._links.get(link.member.instance) is link:
            del self._links[link.member.instance]
            self._note_seeing(link)
        for session in self._sessions.values():
            if session.links.get(link.drafter) is link:
                del session.links[link.drafter]
                session.resting.pop(link.drafter, None)
                self._place(session)


def _fits(link: Link, drafter: str, session: _Session) -> bool:
    """Whether the proposer has the drafter and may hold the session's tokens."""
    return link.drafter == drafter and may_hold(link.member.status, session.opened.request.residency)


def _traceparent(request: Request) -> str:
    """The span in which the request runs, for proposers; empty if its trace is not kept."""
    return traceparent(request.trace.parent) if request.trace is not None else ""
