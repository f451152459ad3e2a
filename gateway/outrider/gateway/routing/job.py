"""One choice of a request as verifiers receive it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from outrider.gateway.admission.caller import Caller
from outrider.gateway.admission.deadlines import NO_DEADLINES, Deadlines
from outrider.gateway.request.models import ServedModel
from outrider.gateway.routing import Ask
from outrider.v1 import verifier_pb2 as pb
from outrider.v1.sampling_pb2 import SamplingParams, Speculation
from outrider.wire.frames import token_subject
from outrider.wire.ids import pack_ids


class Job(msgspec.Struct, frozen=True):
    """A tokenized request for one answer, which any verifier of its model can take.

    A resumable stream has a ``stream_id`` and a ``record``: the verifier keeps both, so that another gateway can find
    the stream there. ``prompt`` and ``prediction`` hold token ids, ``filters`` names; ``begun`` is when the flight
    began, in seconds of the monotonic clock. ``calls`` says whether calls of functions are read from the answer. Only
    requests with the same ``cache_salt`` share pages and answers. A job to ``embed`` its prompt has no answer.
    """

    request_id: str
    served: ServedModel
    prompt: list[int]
    sampling: SamplingParams
    speculation: Speculation
    caller: Caller
    priority: int = 0
    session: str = ""
    deadlines: Deadlines = NO_DEADLINES
    coalesce: bool = False
    stream_id: str = ""
    record: bytes = b""
    begun: float = 0.0
    filters: tuple[str, ...] = ()
    calls: bool = False
    prediction: list[int] = []
    cache_salt: str = ""
    embed: bool = False

    @property
    def shareable(self) -> bool:
        """Whether this request and an identical one may share an answer: neither has a deadline."""
        return self.coalesce and not self.deadlines.any

    @property
    def ask(self) -> Ask:
        """The part that routers see."""
        caller = self.caller
        return Ask(
            caller.tenant, self.prompt, self.sampling.max_tokens, self.session, caller.residency, self.cache_salt
        )

    @property
    def subject(self) -> str:
        """The NATS subject of its frames as verifiers publish them."""
        return token_subject(self.caller.tenant, self.request_id, unfiltered=bool(self.filters))

    @property
    def reader_subject(self) -> str:
        """The NATS subject on which clients read its frames."""
        return token_subject(self.caller.tenant, self.request_id)

    def submission(self, emitted: Sequence[int], lease_s: float) -> pb.SubmitRequest:
        """The call that makes a verifier generate what follows the ``emitted`` token ids.

        The verifier drops the request unless a gateway renews it every ``lease_s`` seconds.
        """
        ttft_ms, timeout_ms = (0, 0) if self.deadlines is NO_DEADLINES else self.deadlines.left_ms(bool(emitted))
        return pb.SubmitRequest(
            request_id=self.request_id,
            tenant=self.caller.tenant,
            prompt=pack_ids(self.prompt),
            emitted=pack_ids(emitted),
            sampling=self.sampling,
            speculation=self.speculation,
            priority=self.priority,
            weight=self.caller.weight,
            lease_ms=round(lease_s * 1e3),
            ttft_ms=ttft_ms,
            timeout_ms=timeout_ms,
            stream_id=self.stream_id,
            record=self.record,
            filtered=bool(self.filters),
            residency=sorted(self.caller.residency or ()),
            prediction=pack_ids(self.prediction),
            cache_salt=self.cache_salt,
            embed=self.embed,
        )
