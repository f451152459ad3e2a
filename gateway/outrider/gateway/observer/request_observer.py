"""Observes a request while its answer is read, and reports it once it has ended."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol

from outrider.gateway import metrics
from outrider.gateway.admission.reservation import Admission
from outrider.gateway.observer.genai import EndedRequest, GenAiMetrics
from outrider.gateway.observer.refusals import cause_of
from outrider.gateway.observer.settings import MeasuringSettings, Price
from outrider.gateway.observer.span import GenAiSpan
from outrider.gateway.observer.tenant_labels import TenantLabels
from outrider.mesh.errors import Cancelled, DeadlineExceeded, InvalidRequest, OutriderError
from outrider.mesh.telemetry import UsageRecord, keeps_usage, note_usage
from outrider.wire.frames import Finish, Frame, Usage

_MILLION = 1_000_000
_MET = {True: "yes", False: "no"}


class Answer(Protocol):
    """What an observer reads of the stream of a choice."""

    @property
    def failed(self) -> OutriderError | None:
        """The error that ended the stream."""
        ...

    @property
    def spent(self) -> int:
        """Tokens generated so far."""
        ...


class ObservedRequest(NamedTuple):
    """What an observer has to know of a request.

    ``began`` is when the request was admitted, in seconds of the monotonic clock; ``prompts`` the tokens of each
    prompt, ``choices`` the number of answers to all of them. ``operation`` is chat or text_completion; it is empty for
    an answer that another gateway began.
    """

    model: str
    tenant: str
    began: float
    prompts: Sequence[int]
    choices: int
    operation: str = ""


class Observers:
    """What the observers of a gateway share, as the settings say. ``genai`` gets each ended request as well."""

    def __init__(self, settings: MeasuringSettings, genai: GenAiMetrics | None) -> None:
        self.tenants = tenants = TenantLabels(settings.metrics_tenants)
        self.label: Callable[[str], str] = tenants if settings.metrics_tenants else lambda tenant: ""
        self._prices = settings.prices
        self._first_s, self._token_s = settings.slo_first_token_s, settings.slo_output_token_s
        self.genai = genai

    def price(self, model: str) -> Price | None:
        """The price of a model's tokens, if there is one."""
        return self._prices.get(model)

    def met(self, first_s: float | None, token_s: float | None) -> bool | None:
        """Whether a request met its objective; None if there is none."""
        if not (self._first_s or self._token_s):
            return None
        late = self._first_s and (first_s is None or first_s > self._first_s)
        slow = self._token_s and token_s is not None and token_s > self._token_s
        return not (late or slow)


class RequestObserver:
    """The observer of one request at this gateway.

    `note` is called for each batch of frames and takes less than a microsecond; everything else is done at the end.

    Attributes:
        span: the span of the request; None without traces, and for a flight that was taken over.
    """

    def __init__(self, observers: Observers, request: ObservedRequest) -> None:
        self._observers, self._request, self._resumed = observers, request, not request.operation
        self._gaps = metrics.inter_token.labels(request.model)
        self._read = [0] * request.choices
        self._before = [0] * request.choices
        self._first = [0.0] * request.choices
        self._last = [0.0] * request.choices
        self._ends: dict[int, Frame] = {}
        self._began, self._counted, self._running = time.monotonic(), False, False
        self.span: GenAiSpan | None = None

    def begin(self) -> None:
        """The request is admitted, and verifiers have it. `report` does nothing for a request that ends before."""
        self._running = True

    def skip(self, tokens: Sequence[int]) -> None:
        """Notes that other gateways have read so many tokens of each choice."""
        self._read, self._before = list(tokens), list(tokens)

    def note(self, choice: int, frames: Sequence[Frame]) -> None:
        """Notes frames of a choice that were ready together."""
        frame = frames[-1]
        end = frame.first_index + len(frame.tokens)
        if end > self._read[choice]:
            now, last = time.monotonic(), self._last[choice]
            if last:
                self._gaps.observe(now - last)
            else:
                self._first[choice] = now
            self._last[choice], self._read[choice] = now, end
        if frame.finish is not None:
            self._ends[choice] = frame

    def refuse(self, error: BaseException) -> None:
        """Counts a request that no verifier took."""
        refusal = error if isinstance(error, OutriderError) else Cancelled("the client has left")
        self._count("cancelled" if isinstance(refusal, Cancelled) else "refused", refusal)

    def end(self, answers: Sequence[Answer], *, owned: bool) -> None:
        """Counts the request and its tokens, once; it is ``owned`` if no other reader has taken it over."""
        if self._counted:
            return
        failure = next((answer.failed for answer in answers if answer.failed is not None), None)
        self._count_tokens(answers)
        self._count(self._outcome(failure, owned), failure)

    def report(
        self,
        admission: Admission,
        request: str,
        spent: Sequence[int],
        charged: tuple[int, int],
        error: BaseException | None,
    ) -> None:
        """Ends the span and writes the usage, once: ``spent`` tokens of each choice, ``charged`` of prompt and answers.

        ``error`` ended the ``request``, if anything did.
        """
        if not self._running:
            return
        self._running = False
        ends = [self._ends[choice] for choice in sorted(self._ends)]
        if self.span is not None:
            self.span.end(sum(spent), ends, error)
        if not keeps_usage():
            return
        note_usage(
            UsageRecord(
                outcome="failed" if error else "done" if len(ends) == len(self._read) else "left",
                actor=admission.caller.actor,
                tenant=admission.caller.tenant,
                door=admission.api,
                address=admission.address,
                request=request,
                model=self._request.model,
                choices=len(self._read),
                input_tokens=charged[0],
                output_tokens=charged[1],
                finish_reasons=[str(end.finish) for end in ends],
                error=type(error).__name__ if error else "",
                seconds=round(time.monotonic() - self._began, 3),
            )
        )

    def _outcome(self, failure: OutriderError | None, owned: bool) -> str:
        if failure is not None:
            kinds = ((Cancelled, "cancelled"), (DeadlineExceeded, "timeout"), (InvalidRequest, Finish.REFUSED.value))
            return next((outcome for kind, outcome in kinds if isinstance(failure, kind)), "failed")
        if len(self._ends) < len(self._read):
            return "cancelled" if owned else "moved"
        return next(str(frame.finish) for _, frame in sorted(self._ends.items()))

    def _count(self, outcome: str, failure: OutriderError | None) -> None:
        self._counted, request = True, self._request
        request_s = time.monotonic() - request.began
        metrics.request_seconds.labels(request.model, outcome).observe(request_s)
        if self._resumed:
            return
        first_s, token_s = self._observe_tokens()
        self._judge(outcome, failure, first_s, token_s)
        if self._observers.genai is not None:
            error = type(failure).__name__ if failure is not None else ""
            self._observers.genai.record(
                EndedRequest(request.operation, request.model, request_s, first_s, token_s, error)
            )

    def _observe_tokens(self) -> tuple[float | None, float | None]:
        """Observes times of tokens; the longest time to a first token, and the longest mean time of a further one."""
        model = self._request.model
        firsts = [first - self._request.began for first in self._first if first]
        means = list(self._means())
        for seconds in firsts:
            metrics.first_token.labels(model).observe(seconds)
        for seconds in means:
            metrics.output_token.labels(model).observe(seconds)
        return max(firsts, default=None), max(means, default=None)

    def _means(self) -> Iterator[float]:
        for read, first, last in zip(self._read, self._first, self._last, strict=True):
            if first and read > 1:
                yield (last - first) / (read - 1)

    def _judge(self, outcome: str, failure: OutriderError | None, first_s: float | None, token_s: float | None) -> None:
        """Counts whether the request met its objective; one that its client ended or got wrong does not count."""
        if outcome in ("cancelled", "moved") or (failure is not None and cause_of(failure) in ("invalid", "limit")):
            return
        met = self._observers.met(first_s, token_s)
        if met is not None:
            met = met and outcome in (Finish.STOP, Finish.LENGTH)
            metrics.slo_requests.labels(self._request.model, _MET[met]).inc()

    def _count_tokens(self, answers: Sequence[Answer]) -> None:
        request, model = self._request, self._request.model
        labels = model, self._observers.label(request.tenant)
        prompt, cached = (0, 0) if self._resumed else (sum(request.prompts), self._cached())
        pairs = zip(answers, self._before, strict=True)
        generated = sum(max(0, answer.spent - before) for answer, before in pairs)
        metrics.prompt_tokens.labels(*labels).inc(prompt)
        metrics.cached_tokens.labels(*labels).inc(cached)
        metrics.generated_tokens.labels(*labels).inc(generated)
        if (price := self._observers.price(model)) is not None:
            cost = (prompt - cached) * price.prompt + cached * price.cached + generated * price.generated
            metrics.cost.labels(*labels).inc(cost / _MILLION)

    def _cached(self) -> int:
        """Tokens of prompts that the first choice of each prompt found in pages."""
        step = len(self._read) // len(self._request.prompts)
        ends = (self._ends.get(choice) for choice in range(0, len(self._read), step))
        return sum((frame.usage or Usage(0, 0)).cached_tokens for frame in ends if frame is not None)
