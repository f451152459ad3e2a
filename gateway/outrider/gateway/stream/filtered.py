"""The answer to one job as its filters let it pass."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

import msgspec
from outrider.gateway.filters import Passed
from outrider.gateway.filters.chain import Chain
from outrider.gateway.routing.job import Job
from outrider.gateway.stream.answer import AnswerStream
from outrider.mesh.errors import OutriderError
from outrider.wire.frames import WITHHELD, Finish, Frame, Usage


class FilteredFrames:
    """Filters the frames of one answer, which must come in order, token by token.

    A text becomes that of the token behind which it is decided, so that it does not depend on how frames divide the
    tokens. Ids, likelihoods and drafts, which would show what the text hides, are withheld. Filters read the text that
    readers see: where calls are read, a mark of calls without text of its own is text; elsewhere such a token is none.
    A thought is another text than the answer behind it: what filters still hold of it comes with the answer's first
    token, which then counts as the thought's, and whose own text comes with the next.
    """

    def __init__(self, job: Job, chain: Chain) -> None:
        self._job, self._chain = job, chain
        self._marks = {mark.token: mark.text for mark in job.served.calls.marks if mark.silent and job.calls}
        self._accepted = self._steps = self._thought = 0
        self._thinks, self._late = False, ""

    async def take(self, frame: Frame) -> Frame:
        """``frame`` as readers get it; it has a finish if a filter ends the answer. Raises as `Chain.feed`."""
        self._steps += bool(frame.tokens) and frame.first_index >= 0
        texts: list[str] = []
        for place, (token, text) in enumerate(zip(frame.tokens, frame.texts, strict=True)):
            if self._thinks and place >= frame.thought:
                rest = await self._close_thought()
                frame = msgspec.structs.replace(frame, thought=place + bool(rest.text))
            else:
                rest, self._thinks = Passed(), place < frame.thought
            passed = rest if rest.ended else await self._read(token, text)
            texts.append(rest.text or self._late + passed.text)
            self._late = passed.text if rest.text else ""
            if passed.ended:
                return self._last(frame, texts, len(texts))
        if frame.finish is Finish.FILTERED:
            return self._last(frame, texts, len(texts))
        if frame.finish is not None:
            passed = await self._chain.end()
            if self._late or (not texts and passed.text):
                texts.append(self._late + passed.text)
                frame = msgspec.structs.replace(frame, thought=len(texts) if self._thinks else frame.thought)
            elif texts:
                texts[-1] += passed.text
            if passed.ended:
                return self._last(frame, texts, len(frame.tokens))
        return self._shown(frame, texts, len(frame.tokens))

    async def _read(self, token: int, text: str) -> Passed:
        """What a token lets pass."""
        text += self._marks.get(token, "")
        return await self._chain.feed(text) if text else Passed()

    async def _close_thought(self) -> Passed:
        """What filters still let pass of the thought that has ended."""
        self._thinks = False
        return await self._chain.end()

    def _shown(self, frame: Frame, texts: list[str], count: int) -> Frame:
        """The first ``count`` tokens of ``frame`` with ``texts``."""
        self._thought += min(frame.thought, count)
        self._accepted += sum(map(bool, frame.guessed_by[max(0, -frame.first_index) : count]))
        return msgspec.structs.replace(
            frame,
            tokens=[WITHHELD] * len(frame.tokens[:count]),
            texts=texts,
            guessed_by=frame.guessed_by[:count],
            likelihoods=None,
            drafts=None,
            thought=min(frame.thought, len(texts)),
        )

    def _last(self, frame: Frame, texts: list[str], count: int) -> Frame:
        shown, end = self._shown(frame, texts, count), max(0, frame.first_index + count)
        usage = Usage(len(self._job.prompt), end, accepted_tokens=self._accepted, steps=self._steps)
        usage = msgspec.structs.replace(usage, reasoning_tokens=self._thought)
        return msgspec.structs.replace(shown, finish=Finish.FILTERED, usage=usage, verifier=None, stop=None)


async def filtered(
    stream: AnswerStream, chain: Chain, end: Callable[[str, Frame], None]
) -> AsyncGenerator[list[Frame], None]:
    """`AnswerStream.frames` of ``stream`` as the filters of ``chain`` let them pass.

    Where a filter ends the answer, ``end`` gets the job's subject and a frame for all readers, the verifier stops, and
    later tokens do not count. If a filter fails, the stream fails with `Unavailable` and can be resumed.
    """
    reading = FilteredFrames(stream.job, chain)
    async with aclosing(stream.frames()) as batches:
        async for frames in batches:
            shown: list[Frame] = []
            try:
                for frame in frames:
                    shown.append(await reading.take(frame))
                    if shown[-1].finish is not None:
                        break
            except OutriderError as error:
                stream.failed = error
                raise
            if (last := shown[-1]).finish is Finish.FILTERED and frame.finish is not Finish.FILTERED:
                await _stop(stream, last, end)
            yield shown
            if last.finish is not None:
                return


async def _stop(stream: AnswerStream, last: Frame, end: Callable[[str, Frame], None]) -> None:
    """Ends the answer for all gateways, and at its verifier."""
    index = last.first_index + len(last.tokens)
    end(stream.job.subject, Frame(stream.job.request_id, index, [], [], [], Finish.FILTERED, last.usage))
    await stream.close()
    stream.finished, stream.spent = True, max(0, index)
