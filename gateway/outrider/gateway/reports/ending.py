"""What traces and the usage log tell of a flight once it has ended."""

from __future__ import annotations

import time
from collections.abc import Sequence

from outrider.gateway.admission.reservation import Admission
from outrider.gateway.reports.gen_ai_span import GenAiSpan
from outrider.mesh.telemetry import UsageRecord, keeps_usage, note_usage
from outrider.wire.frames import Finish, Frame, Usage


class Ending:
    """How the ``choices`` of a flight end.

    Attributes:
        span: the span of the request; None without traces, and for a flight that was taken over.
    """

    def __init__(self, choices: int) -> None:
        self.span: GenAiSpan | None = None
        self._finishes: list[Finish | None] = [None] * choices
        self._usages: list[Usage] = []
        self._began, self._running = time.monotonic(), False

    def begin(self) -> None:
        """The request is admitted, and verifiers have it. What ends before that is not told."""
        self._running = True

    def note(self, choice: int, frames: Sequence[Frame]) -> None:
        """Notes the end of a choice, if ``frames`` hold it."""
        last = frames[-1]
        if last.finish is not None:
            self._finishes[choice] = last.finish
            if last.usage is not None:
                self._usages.append(last.usage)

    def tell(
        self,
        admission: Admission,
        request: str,
        model: str,
        spent: Sequence[int],
        charged: tuple[int, int],
        error: BaseException | None,
    ) -> None:
        """Ends the span and writes the usage, once: ``spent`` tokens of each choice, ``charged`` of prompt and answers.

        ``error`` ended the request, if anything did.
        """
        if not self._running:
            return
        self._running = False
        if self.span is not None:
            self.span.end(sum(spent), self._finishes, self._usages, error)
        if not keeps_usage():
            return
        reasons = [str(finish) for finish in self._finishes if finish is not None]
        note_usage(
            UsageRecord(
                outcome="failed" if error else "done" if len(reasons) == len(self._finishes) else "left",
                actor=admission.caller.actor,
                tenant=admission.caller.tenant,
                door=admission.api,
                address=admission.address,
                request=request,
                model=model,
                choices=len(self._finishes),
                input_tokens=charged[0],
                output_tokens=charged[1],
                finish_reasons=reasons,
                error=type(error).__name__ if error else "",
                seconds=round(time.monotonic() - self._began, 3),
            )
        )
