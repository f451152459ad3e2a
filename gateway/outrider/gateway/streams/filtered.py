"""The answer to one job as its filters let it pass."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing

import msgspec
from outrider.gateway.filters import Passed
from outrider.gateway.filters.chain import Chain
from outrider.gateway.routing.job import Job
from outrider.gateway.streams.answer import AnswerStream, OnPlaced
from outrider.mesh.errors import OutriderError
from outrider.mesh.registry import Member
from outrider.wire.frames import WITHHELD, Finish, Frame, Usage


class FilteredFrames:
    """Filters the frames of one answer, which must come in order, token by token.

    A text becomes that of the token behind which it is decided, so that it does not depend on how frames divide the
    tokens. Ids, likelihoods and drafts, which would show what the text hides, are withheld. Filters read the text that
    readers see: where calls are read, a mark of calls without text of its own is text; elsewhere such a token is none.
    """

    def __init__(self, job: Job, chain: Chain) -> None:
        self._job, self._chain = job, chain
        self._marks = {mark.token: mark.text for mark in job.served.calls.marks if mark.silent and job.calls}
        self._accepted = self._steps = 0

    async def take(self, frame: Frame) -> Frame:
        """``frame`` as readers get it; it has a finish if a filter ends the answer. Raises as `Chain.feed`."""
        self._steps += bool(frame.tokens) and frame.first_index >= 0
        texts: list[str] = []
        for token, text in zip(frame.tokens, frame.texts, strict=True):
            passed = await self._read(token, text)
            texts.append(passed.text)
            if passed.ended:
                return self._last(frame, texts, len(texts))
        if frame.finish is Finish.FILTERED:
            return self._last(frame, texts, len(texts))
        if frame.finish is not None:
            passed = await self._chain.end()
            texts = [*texts[:-1], "".join(texts[-1:]) + passed.text] if texts or passed.text else []
            if passed.ended:
                return self._last(frame, texts, len(frame.tokens))
        return self._shown(frame, texts, len(frame.tokens))

    async def _read(self, token: int, text: str) -> Passed:
        """What a token lets pass."""
        text += self._marks.get(token, "")
        return await self._chain.feed(text) if text else Passed()

    def _shown(self, frame: Frame, texts: list[str], count: int) -> Frame:
        """The first ``count`` tokens of ``frame`` with ``texts``."""
        self._accepted += sum(map(bool, frame.guessed_by[max(0, -frame.first_index) : count]))
        return msgspec.structs.replace(
            frame,
            tokens=[WITHHELD] * len(frame.tokens[:count]),
            texts=texts,
            guessed_by=frame.guessed_by[:count],
            likelihoods=None,
            drafts=None,
        )

    def _last(self, frame: Frame, texts: list[str], count: int) -> Frame:
        shown, end = self._shown(frame, texts, count), max(0, frame.first_index + count)
        usage = Usage(len(self._job.prompt), end, accepted_tokens=self._accepted, steps=self._steps)
        return msgspec.structs.replace(shown, finish=Finish.FILTERED, usage=usage, verifier=None)


class FilteredStream:
    """An `AnswerStream` that reads another one, ``inner``, and filters its frames.

    Where a filter ends the answer, ``end`` gets the job's subject and a frame for all readers, and the verifier stops.
    If a filter fails, the stream fails with `Unavailable` and can be resumed.
    """

    def __init__(self, inner: AnswerStream, chain: Chain, end: Callable[[str, Frame], None]) -> None:
        self.job, self._inner, self._end = inner.job, inner, end
        self._filtered = FilteredFrames(inner.job, chain)
        self._failed: OutriderError | None = None
        self._stopped_at: int | None = None
        self.finished = False

    @property
    def on_placed(self) -> OnPlaced:
        """As `AnswerStream.on_placed`."""
        return self._inner.on_placed

    @on_placed.setter
    def on_placed(self, on_placed: OnPlaced) -> None:
        self._inner.on_placed = on_placed

    @property
    def spent(self) -> int:
        """As `AnswerStream.spent`; tokens behind the place where a filter ended the answer do not count."""
        return self._inner.spent if self._stopped_at is None else self._stopped_at

    @property
    def failed(self) -> OutriderError | None:
        """As `AnswerStream.failed`."""
        return self._failed or self._inner.failed

    @property
    def expired_unstarted(self) -> bool:
        """As `AnswerStream.expired_unstarted`."""
        return self._inner.expired_unstarted

    @property
    def placed(self) -> bool:
        """As `AnswerStream.placed`."""
        return self._inner.placed

    @property
    def verifier(self) -> str:
        """As `AnswerStream.verifier`."""
        return self._inner.verifier

    @property
    def holder(self) -> str:
        """As `AnswerStream.holder`."""
        return self._inner.holder

    @property
    def lease(self) -> tuple[str, Member] | None:
        """As `AnswerStream.lease`."""
        return None if self.finished else self._inner.lease

    async def open(self) -> None:
        """As `AnswerStream.open`."""
        await self._inner.open()

    async def frames(self) -> AsyncGenerator[list[Frame], None]:
        """As `AnswerStream.frames`; raises `Unavailable` if a filter fails."""
        async with aclosing(self._inner.frames()) as batches:
            async for frames in batches:
                yield await self._take(frames)
                if self.finished:
                    return

    async def close(self, *, cancel: bool = True) -> None:
        """As `AnswerStream.close`."""
        if self._stopped_at is None:
            await self._inner.close(cancel=cancel)

    def follow(self, reason: str) -> None:
        """As `AnswerStream.follow`."""
        if not self.finished:
            self._inner.follow(reason)

    async def _take(self, frames: Sequence[Frame]) -> list[Frame]:
        shown: list[Frame] = []
        try:
            for frame in frames:
                shown.append(await self._filtered.take(frame))
                if (last := shown[-1]).finish is not None:
                    self.finished = True
                    await self._stop(last, frame)
                    break
        except OutriderError as error:
            self._failed = error
            raise
        return shown

    async def _stop(self, last: Frame, source: Frame) -> None:
        """Ends the answer for all gateways, and at its verifier, if a filter ended it here."""
        if last.finish is Finish.FILTERED and source.finish is not Finish.FILTERED:
            end = last.first_index + len(last.tokens)
            mark = Frame(self.job.request_id, end, [], [], [], Finish.FILTERED, last.usage)
            self._end(self.job.subject, mark)
            await self._inner.close()
            self._stopped_at = max(0, end)
