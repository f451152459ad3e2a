"""A mesh in one process, for streams: verifiers and a broker that fail when a test says so, in virtual time.

What it does is what the real ones do, seen from a stream; tests/chaos and tests/gateway/mesh have the real ones.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Collection, Iterator
from types import SimpleNamespace
from typing import Any

from outrider.gateway.routing.job import Job
from outrider.mesh.errors import AlreadyExists, NotFound, OutriderError, Unavailable, Unreachable
from outrider.mesh.registry import Member, State
from outrider.wire.frames import Finish, Frame

LENGTH = 40
PACE_S = 0.1
SUBMIT_S, HEARTBEAT_S, DROPPED_S = 2.0, 1.5, 2.2


class Generation:
    """A request at one verifier: its ``frames`` so far, which end before token ``end``."""

    def __init__(self, end: int) -> None:
        self.end = end
        self.frames: list[Frame] = []

    @property
    def over(self) -> bool:
        return bool(self.frames) and self.frames[-1].finish is not None


class ScriptedVerifier:
    """A verifier as a stream meets it."""

    def __init__(self, name: str) -> None:
        self.member = Member("verifier", name, name, State.READY, {"heartbeats": True, "batches": True})
        self.alive = self.known = True
        self.frozen = self.draining = self.cut = False
        self.generation: Generation | None = None
        self.changed = asyncio.Event()

    def wake(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()


class World:
    """Verifiers and the broker of one ``job``; stands in for `Verifiers`, for `FrameReader` and its `Reading`.

    Calls take ``delays`` seconds, one after the other and again from the first.
    """

    def __init__(self, job: Job, verifiers: int, delays: Iterator[float]) -> None:
        self.job, self._delays = job, delays
        self.connected, self.to_drop, self.deaths = True, 0, 0
        self.all: list[ScriptedVerifier] = []
        self.counts: Counter[str] = Counter()
        self.followed: list[Member] = []
        self.isolation = asyncio.Lock()
        self.refused = SimpleNamespace(some=False, ban=lambda sampling: None)
        self.follow_stream: Callable[[str, str | None], None] = lambda reason, verifier: None
        self.subject, self.tag = "frames", 1
        self._receive: Callable[[Frame], None] | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        for _ in range(verifiers):
            self.add()

    def add(self) -> ScriptedVerifier:
        verifier = ScriptedVerifier(f"v{len(self.all)}")
        self.all.append(verifier)
        self.spawn(self._generate(verifier))
        return verifier

    def spawn(self, work: Any) -> None:
        self._tasks.add(task := asyncio.get_running_loop().create_task(work))
        task.add_done_callback(self._tasks.discard)

    def foreign(self) -> set[asyncio.Task[Any]]:
        """Tasks of the loop that are neither the world's nor the present one."""
        return asyncio.all_tasks() - self._tasks - {asyncio.current_task()}

    # What fails

    def lose_broker(self) -> None:
        if self.connected:
            self.connected = False
            self.follow_stream("disconnected", None)

    def find_broker(self) -> None:
        self.connected = True

    def kill(self, verifier: ScriptedVerifier) -> None:
        if verifier.alive:
            self.deaths += 1
            verifier.alive = verifier.frozen = False
            verifier.generation = None
            verifier.wake()
            self.spawn(self._notice(verifier))

    def freeze(self, verifier: ScriptedVerifier) -> None:
        if verifier.alive and not verifier.frozen:
            verifier.frozen = True
            verifier.wake()
            self.spawn(self._notice(verifier))

    def thaw(self, verifier: ScriptedVerifier) -> None:
        if verifier.alive:
            verifier.frozen, verifier.cut, verifier.known = False, False, True
            verifier.wake()

    def break_off(self, verifier: ScriptedVerifier) -> None:
        """Cuts the gateway, and nobody else, off from a verifier."""
        verifier.cut = True
        verifier.wake()

    def drain(self, verifier: ScriptedVerifier) -> None:
        verifier.draining = True
        self.give_up(verifier)

    def give_up(self, verifier: ScriptedVerifier) -> None:
        """Cancels the request without a reason."""
        if verifier.alive and not verifier.frozen and verifier.generation and not verifier.generation.over:
            self._emit(verifier, 0, Finish.CANCELLED)

    def forget(self, verifier: ScriptedVerifier) -> None:
        """The engine loses the request without a word."""
        if not verifier.frozen:
            verifier.generation = None
            verifier.wake()

    async def _notice(self, verifier: ScriptedVerifier) -> None:
        """The registry drops a verifier that is dead or frozen for long; gateways hear of a death."""
        if not verifier.alive:
            await asyncio.sleep(next(self._delays))
            self.follow_stream("lost", verifier.member.instance)
        await asyncio.sleep(DROPPED_S)
        verifier.known = verifier.alive and not verifier.frozen

    async def _generate(self, verifier: ScriptedVerifier) -> None:
        while True:
            await asyncio.sleep(PACE_S)
            generation = verifier.generation
            if verifier.alive and not verifier.frozen and generation and not generation.over:
                count = min(1 + generation.end % 3, LENGTH - generation.end)
                self._emit(verifier, count, Finish.LENGTH if generation.end + count == LENGTH else None)

    def _emit(self, verifier: ScriptedVerifier, count: int, finish: Finish | None) -> None:
        generation = verifier.generation
        assert generation is not None
        ids = list(range(generation.end, generation.end + count))
        frame = Frame(self.job.request_id, generation.end, ids, [""] * count, [""] * count, finish)
        if finish is Finish.CANCELLED:
            frame = Frame(self.job.request_id, generation.end, [], [], [], finish, verifier=verifier.member.instance)
        generation.end += count
        generation.frames.append(frame)
        verifier.wake()
        self.end(frame)

    # The broker

    def end(self, frame: Frame) -> None:
        self.to_drop -= 1
        if self.connected and self._receive is not None and self.to_drop < 0:
            asyncio.get_running_loop().call_later(next(self._delays) / 10, self._deliver, frame)

    def _deliver(self, frame: Frame) -> None:
        if self.connected and self._receive is not None:
            self._receive(frame)

    def reading(self, answer: str) -> World:
        assert answer == self.job.subject
        return self

    def begin(self, receive: Callable[[Frame], None]) -> None:
        self._receive = receive

    def close(self) -> None:
        self._receive = None

    # The verifiers

    def candidates(self, ask: object, served: object, avoid: Collection[str] = ()) -> list[Member]:
        ready = [each.member for each in self.all if each.known and not each.draining]
        return sorted(ready, key=lambda member: member.instance in avoid)

    async def submit(self, ask: object, message: Any, member: Member) -> OutriderError | None:
        verifier = self._of(member)
        self.enter(member)
        refusal = await self._submitted(verifier, len(message.emitted) // 4)
        if refusal is not None and not isinstance(refusal, AlreadyExists):
            self.leave(member)
        return refusal

    async def _submitted(self, verifier: ScriptedVerifier, begin: int) -> OutriderError | None:
        try:
            async with asyncio.timeout(SUBMIT_S):
                await asyncio.sleep(next(self._delays))
                while verifier.frozen:
                    await verifier.changed.wait()
        except TimeoutError:
            return Unavailable("a verifier did not answer")
        except asyncio.CancelledError:
            self.leave(verifier.member)
            raise
        if not verifier.alive or verifier.cut:
            return _broken()
        if verifier.draining:
            return Unavailable("draining")
        if verifier.generation is not None and not verifier.generation.over:
            return AlreadyExists("the verifier has the request")
        verifier.generation = Generation(begin)
        return None

    async def follow(self, job: Job, member: Member, start: int) -> AsyncGenerator[Frame, None]:
        self.followed.append(member)
        try:
            await asyncio.sleep(next(self._delays))
            async for frame in self._frames(self._of(member), start):
                yield frame
        finally:
            self.followed.remove(member)

    async def _frames(self, verifier: ScriptedVerifier, start: int) -> AsyncGenerator[Frame, None]:
        place = 0
        while True:
            if not verifier.alive or verifier.cut:
                raise _broken()
            if verifier.frozen or (verifier.generation and place == len(verifier.generation.frames)):
                await self._changed(verifier)
                continue
            if verifier.generation is None:
                raise NotFound("the verifier does not know the request")
            frame = verifier.generation.frames[place]
            place += 1
            if frame.finish or frame.first_index + len(frame.tokens) > start:
                yield frame
            if frame.finish:
                return

    async def _changed(self, verifier: ScriptedVerifier) -> None:
        try:
            async with asyncio.timeout(HEARTBEAT_S if verifier.frozen else None):
                await verifier.changed.wait()
        except TimeoutError:
            raise Unavailable("the verifier gives no sign of life") from None

    def cancel(self, job: Job, members: Collection[Member], reason: str = "") -> None:
        for member in members:
            self.spawn(self._cancelled(self._of(member)))

    async def _cancelled(self, verifier: ScriptedVerifier) -> None:
        await asyncio.sleep(next(self._delays))
        while verifier.frozen:
            await verifier.changed.wait()
        self.give_up(verifier)
        self.forget(verifier)

    def enter(self, member: Member) -> None:
        self.counts[member.instance] += 1

    def leave(self, member: Member) -> None:
        self.counts[member.instance] -= 1

    def present(self, member: Member) -> bool:
        return self.find(member.instance) is not None

    def draining(self, member: Member) -> bool:
        return self._of(member).draining

    def find(self, instance: str) -> Member | None:
        return next((each.member for each in self.all if each.member.instance == instance and each.known), None)

    def _of(self, member: Member) -> ScriptedVerifier:
        return next(each for each in self.all if each.member is member)


def _broken() -> Unreachable:
    error = Unreachable("the connection broke")
    error.broke = True
    return error
