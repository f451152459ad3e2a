"""The tokens of one request, in order and complete, whatever becomes of the broker and of verifiers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing

from outrider.gateway import metrics
from outrider.gateway.attempts import BUSY, TRANSIENT, persist
from outrider.gateway.casualties import Casualties
from outrider.gateway.deadlines import GRACE_S
from outrider.gateway.errors import Fatal
from outrider.gateway.inbox import Arrival, Inbox, Item, Lost, Replayed, Source
from outrider.gateway.reassembly import Reassembly
from outrider.gateway.replay import failure_of
from outrider.gateway.settings import GatewaySettings
from outrider.gateway.verifiers import Job, Verifiers
from outrider.mesh.bus import Bus, Message, Subscription
from outrider.mesh.errors import Internal, OutriderError, Unavailable, Unreachable
from outrider.mesh.registry import Member
from outrider.mesh.telemetry import get_logger
from outrider.wire.frames import Finish, Frame, decode_frame

_log = get_logger("stream")
_AGAIN_S = 0.1


def _nothing() -> None:
    """Is called where nobody has to be told."""


class TokenStream:
    """One request from its submission to its last token.

    Frames come over the bus. When the bus is away, loses one or falls silent, the verifier itself is followed, until
    the bus has caught up. When the verifier is lost, the request goes on at another with the tokens so far. The
    same tokens come out whichever way they came: frames are told apart by index, and the target alone decides.
    ``settled`` is called whenever a verifier has taken the request. ``logged`` tokens of one that was submitted before
    were found in the log, and it is ``open_ended`` unless its end was. It is ``untouched`` where its time was over
    before a verifier had computed anything.
    """

    def __init__(
        self,
        job: Job,
        verifiers: Verifiers,
        bus: Bus,
        settings: GatewaySettings,
        settled: Callable[[], None] = _nothing,
    ) -> None:
        self.job, self._settled = job, settled
        self._verifiers, self._bus, self._settings = verifiers, bus, settings
        self._inbox = Inbox()
        self._hear: Callable[[Frame], None] | None = None
        self._tokens = Reassembly(len(job.prompt) if job.sampling.echo else 0)
        self._member: Member | None = None
        self._leave: Callable[[], None] = lambda: None
        self._tried: dict[str, Member] = {}
        self._known = ""
        self._follower: asyncio.Task[None] | None = None
        self._lost: OutriderError | None = None
        self._stuck_since: float | None = None
        self._casualties = Casualties(job, bus, settings.most_deaths, verifiers.ward, verifiers.condemned)
        self.failed: OutriderError | None = None
        self._began = time.monotonic()
        self.finished = False
        self.logged, self.open_ended, self.untouched = 0, True, False
        self._listening: Subscription | None = None

    @property
    def verifier(self) -> str:
        """Instance that has the request."""
        return self._member.instance if self._member else ""

    @property
    def member(self) -> Member | None:
        """The verifier that has the request, while there is more to come."""
        return None if self.finished else self._member

    @property
    def at(self) -> Member | None:
        """The verifier that has the request, or had it last."""
        return self._member

    @property
    def placed(self) -> bool:
        """Whether a verifier has taken the request."""
        return self._member is not None

    @property
    def holder(self) -> str:
        """Instance that has the request under its own id."""
        return self.verifier

    @property
    def lease(self) -> tuple[str, Member] | None:
        """What has to be renewed for it to go on: the request, and who has it."""
        return None if self.member is None else (self.job.request_id, self.member)

    @property
    def spent(self) -> int:
        """Tokens generated so far."""
        return max(0, self._tokens.next_index)

    async def open(self) -> None:
        """Submits the request; when this fails, `close` still has to be called."""
        await self._subscribe()
        self._settle(await persist(lambda: self._submit(), self._settings.place_s, TRANSIENT))

    async def attach(self, logged: Callable[[Job], Awaitable[Sequence[Frame]]], member: Member | None) -> None:
        """Reads a request that was submitted before: first what was ``logged``, then from ``member``, which has it.

        Where no member has it any more, or the log lacks some of it, another verifier goes on. Like `open`, it is
        followed by `close` even when it fails.
        """
        await self._subscribe()
        frames = await logged(self.job)
        self.logged = max([0, *(frame.first_index + len(frame.tokens) for frame in frames)])
        self.open_ended = all(frame.finish in (None, Finish.CANCELLED) for frame in frames)
        if member is not None:
            self._verifiers.enter(member)
            self._member, self._leave = member, lambda: self._verifiers.leave(member)
            self._tried = {member.instance: member}
        self._inbox.put_first([*(Arrival(Source.LOG, frame) for frame in frames), Replayed()])

    async def frames(self, hear: Callable[[Frame], None] | None = None) -> AsyncGenerator[list[Frame], None]:
        """Frames without gap or repeat up to the one with ``finish``; those that are ready come together.

        Frames with which nothing is the matter go to ``hear``, where it is given, as soon as they are there.

        `Unavailable` when no verifier could be found to go on, `Internal` when the verifier itself failed, `Fatal` when
        one after another died, `Cancelled` when somebody ended the stream for all its readers, `Late` when its time is
        over.
        """
        self._hear = hear
        while not self.finished:
            if self._lost is not None:
                await self._resume(self._lost)
            item = await self._inbox.get(self._settings.silence_s, self._late_at)
            if item is None and self._until_late() <= 0:
                self.failed = self.job.deadlines.late(bool(self.spent))
            elif item is None:
                self._on_silence()
            if ready := self._take_all(item):
                yield ready
            if self.failed is not None:
                raise self.failed

    async def close(self, *, cancel: bool = True) -> None:
        """Lets go of the request; one that has not finished is cancelled at the verifier at once, if at all."""
        if cancel and not self.finished:
            self._verifiers.cancel(self.job, self._tried.values())
        self._leave()
        self._leave = lambda: None
        self._casualties.leave()
        self._unfollow()
        self._settled, self._hear = _nothing, None
        self._inbox.close()
        if self._listening is not None:
            await self._listening.unsubscribe()
            self._listening = None

    def follow(self, reason: str) -> None:
        """Asks the verifier itself for what comes next."""
        if self._follower is None and self._member is not None and not self.finished:
            metrics.follows.labels(reason).inc()
            self._follower = asyncio.create_task(self._follow(self._member, self._tokens.next_index))

    async def _subscribe(self) -> None:
        self._listening = await self._bus.subscribe(self.job.subject, self._on_message)

    def _take_all(self, item: Item | None) -> list[Frame]:
        ready: list[Frame] = []
        while item is not None and not self.finished and self.failed is None:
            fresh = self._take(item)
            if fresh is not None:
                ready.append(self._tokens.complete(fresh))
            item = self._inbox.get_nowait()
        return ready

    def _take(self, item: Item) -> Frame | None:
        if isinstance(item, Lost):
            self._lost, self._follower = item.error, None
            return None
        if isinstance(item, Replayed):
            self._on_replayed()
            return None
        frame = item.frame
        if frame.finish is Finish.CANCELLED:
            self._on_cancelled(item.source, frame)
            return None
        if not self._tokens.fits(frame):
            if item.source is Source.VERIFIER:
                self._on_lacking()
            self.follow("gap")
            return None
        if item.source is Source.BUS and self._tokens.reaches(frame) and self._bus.connected:
            self._unfollow()
        if frame.finish is Finish.ERROR:
            _log.error("the verifier failed a request", request=self.job.request_id, why=frame.error)
        self.failed = failure_of(frame)
        if frame.finish is Finish.TIMEOUT:
            self.failed, self.untouched = self.job.deadlines.late(bool(self.spent)), frame.usage is None
        return None if self.failed else self._fresh(frame)

    def _fresh(self, frame: Frame) -> Frame | None:
        first = self._tokens.next_index <= 0
        fresh = self._tokens.take(frame)
        if fresh is not None:
            self._stuck_since = None
            self.finished = fresh.finish is not None
            end = fresh.first_index + len(fresh.tokens)
            if end > 0:
                metrics.tokens.inc(min(end, len(fresh.tokens)))
                self._casualties.clear()
                if first:
                    metrics.first_token.observe(time.monotonic() - self._began)
        return fresh

    def _on_message(self, message: Message) -> None:
        frame = decode_frame(message.data)
        if self._hear is not None and self._goes_on(frame) and (fresh := self._fresh(frame)) is not None:
            self._inbox.heard()
            self._hear(fresh)
        else:
            self._inbox.put(Arrival(Source.BUS, frame))

    def _goes_on(self, frame: Frame) -> bool:
        """Whether ``frame`` is the next, and not the last, of an answer that has begun and that nothing disturbs."""
        undisturbed = self._follower is None and self._inbox.awaited
        return undisturbed and frame.finish is None and frame.first_index == self._tokens.next_index > 0

    def _on_replayed(self) -> None:
        if self._member is None:
            self._lost = Unavailable("no verifier has the request")
        self.follow("resumed")

    def _on_lacking(self) -> None:
        """A verifier that took the request over from another has only what it made itself."""
        if self._lost is None and self._member is not None:
            self._verifiers.cancel(self.job, [self._member])
            self._lost = Unavailable("the verifier lacks earlier tokens")

    def _on_cancelled(self, source: Source, frame: Frame) -> None:
        """A verifier that we left, or that shuts down, says that it cancelled: only who is followed counts.

        A reason is given where the stream was ended for everybody.
        """
        self.failed = failure_of(frame)
        if self.failed is None and source is Source.VERIFIER:
            self._lost = Unavailable("the verifier gave the request up")

    def _on_silence(self) -> None:
        if self._follower is None:
            self.follow("silence")
        elif self._member is not None and self._bus.connected and not self._verifiers.present(self._member):
            self._lost = Unavailable("the verifier is gone")

    async def _follow(self, member: Member, start: int) -> None:
        try:
            async with aclosing(self._verifiers.follow(self.job, member, start)) as frames:
                async for frame in frames:
                    self._inbox.put(Arrival(Source.VERIFIER, frame))
        except OutriderError as error:
            self._inbox.put(Lost(error))
        except Exception:
            _log.exception("a verifier could not be followed", request=self.job.request_id, verifier=member.instance)
            self._inbox.put(Lost(Internal()))

    def _unfollow(self) -> None:
        if self._follower is not None:
            self._follower.cancel()
            self._follower = None

    async def _resume(self, why: OutriderError) -> None:
        """Finds a verifier that goes on where the lost one ended; `Unavailable` when none is found in time."""
        if isinstance(why, Unreachable):
            self._bury(self.verifier)
        now = time.monotonic()
        self._stuck_since = self._stuck_since or now
        left = min(self._settings.resume_s - (now - self._stuck_since), self._until_late())
        _log.warning("a stream lost its verifier", request=self.job.request_id, verifier=self.verifier, why=why.message)
        if left <= 0:
            late = self._until_late() <= 0
            gone = Unavailable("the stream could not be resumed", retry_after=1.0)
            self.failed = self.job.deadlines.late(bool(self.spent)) if late else gone
            raise self.failed
        self._unfollow()
        await asyncio.sleep(_AGAIN_S if self._stuck_since < now else 0)
        await self._casualties.wait(left)
        member = await persist(lambda: self._submit(), left, BUSY)
        metrics.resumptions.inc()
        self._inbox.drop_losses()
        self._lost = None
        self._settle(member)

    @property
    def _late_at(self) -> float:
        """When the gateway itself gives up on a deadline, on the monotonic clock."""
        return self.job.deadlines.due(bool(self.spent)) + GRACE_S

    def _until_late(self) -> float:
        return self._late_at - time.monotonic()

    async def _submit(self) -> Member:
        return await self._verifiers.submit(
            self.job, self._tokens.generated, {self.verifier}, self._note, self._on_died, self._on_known
        )

    def _on_known(self, member: Member) -> None:
        self._known = member.instance

    async def _on_died(self, member: Member) -> None:
        self._bury(member.instance)
        await self._casualties.wait(self._settings.resume_s)

    def _bury(self, instance: str) -> None:
        try:
            if self._casualties.add(instance):
                self._stuck_since = None
        except Fatal as fatal:
            self.failed = fatal
            raise

    def _note(self, member: Member) -> None:
        self._tried[member.instance] = member

    def _settle(self, member: Member) -> None:
        """Reads from ``member`` from now on; others that may have the request are to drop it."""
        self._leave()
        self._member, self._leave = member, lambda: self._verifiers.leave(member)
        others = [other for name, other in self._tried.items() if name != member.instance]
        self._verifiers.cancel(self.job, others)
        self._tried = {member.instance: member}
        self._settled()
        if not self._bus.connected:
            self.follow("disconnected")
        elif self._known == member.instance:
            self.follow("known")
        self._known = ""
