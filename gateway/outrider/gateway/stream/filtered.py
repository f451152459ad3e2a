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
