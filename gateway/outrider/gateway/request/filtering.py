"""Which filters an answer has, and its frames as they let them pass."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence

from outrider.gateway.admission.caller import Caller
from outrider.gateway.filters.installed import InstalledFilters
from outrider.gateway.filters.prompts import filter_prompt
from outrider.gateway.filters.report import Report
from outrider.gateway.request.generation import Generation, Prompt
from outrider.gateway.routing.job import Job
from outrider.gateway.settings import GatewaySettings
from outrider.gateway.stream.answer import AnswerStream
from outrider.gateway.stream.filtered import FilteredFrames, filtered
from outrider.gateway.stream.replay import Replay
from outrider.mesh.errors import InvalidRequest
from outrider.wire.frames import Frame


class Filtering:
    """The filters of a gateway. An answer without filters passes untouched; ``end`` is as in `filtered`."""

    def __init__(self, settings: GatewaySettings, end: Callable[[str, Frame], None]) -> None:
        self._installed, self._end = InstalledFilters(settings), end

    def names(self, generation: Generation, caller: Caller) -> tuple[str, ...]:
        """The filters of the caller's answer, in order.

        Raises `Unavailable` if one is not set up here, and `InvalidRequest` if the request asks for likelihoods, which
        would show what the text hides.
        """
        names = self._installed.answer_filters(caller)
        if names and generation.sampling.logprobs is not None:
            name = "best_of" if generation.kept else "logprobs"
            raise InvalidRequest(f"{name} must be absent: answers to this caller are filtered", param=name)
        return names

    async def prompts(self, request_id: str, prompts: Sequence[Prompt], caller: Caller) -> Sequence[Prompt]:
        """The caller's ``prompts`` as filters let them pass; raises as `filter_prompt`."""
        if not (names := self._installed.prompt_filters(caller)):
            return prompts
        report = Report(caller.tenant, request_id)
        return [await filter_prompt(self._installed.chain(names, report), prompt) for prompt in prompts]

    async def close(self) -> None:
        """Releases what filters share, such as connections."""
        await self._installed.close()

    def require(self, job: Job) -> None:
        """Raises `Unavailable` if a filter of the job's answer is not set up here."""
        self._installed.require(job.filters)

    def read(self, stream: AnswerStream) -> AsyncGenerator[list[Frame], None]:
        """The frames of ``stream`` as the filters of its job let them pass."""
        report = Report(stream.job.caller.tenant, stream.job.request_id)
        return filtered(stream, self._installed.chain(stream.job.filters, report), self._end)

    async def replay(self, log: Replay, job: Job) -> Replay:
        """``log`` as its readers received it; raises `Unavailable` if a filter fails."""
        if not job.filters:
            return log
        filtered, frames = FilteredFrames(job, self._installed.chain(job.filters)), []
        for frame in log.frames:
            frames.append(await filtered.take(frame))
            if frames[-1].finish is not None:
                return Replay(frames)
        return Replay(frames, log.failure, log.given_up)
