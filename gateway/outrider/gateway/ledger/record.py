"""The record of a streamed request, from which another gateway can resume it."""

from __future__ import annotations

import re

import msgspec
from outrider.gateway.admission.caller import Caller
from outrider.gateway.request.generation import choice_seed
from outrider.gateway.request.models import ServedModel
from outrider.gateway.routing.job import Job
from outrider.mesh.errors import NotFound
from outrider.v1.sampling_pb2 import SamplingParams, Speculation
from outrider.wire.ids import pack_ids, unpack_ids
from outrider.wire.subjects import record_subject

_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_UNSIGNED = (1 << 64) - 1
_SIGN = 1 << 63


class Key(msgspec.Struct, frozen=True):
    """The name of a request: its tenant and its id within the tenant."""

    tenant: str
    request: str

    @classmethod
    def read(cls, tenant: str, request: str) -> Key:
        """The key of a request that a caller names; raises `NotFound` if ``request`` cannot be an id."""
        if not _ID.fullmatch(request):
            raise NotFound("there is no such stream: ids are letters, digits, '-' and '_'", param="id")
        return cls(tenant, request)

    @property
    def bill(self) -> str:
        """The name of its bill."""
        return f"{self.tenant}.{self.request}"

    def subject(self, part: str) -> str:
        """The NATS subject of a part of its record."""
        return record_subject(self.tenant, self.request, part)


class FurtherPrompt(msgspec.Struct, frozen=True):
    """A prompt after a request's first: its packed token ids, the most tokens of an answer, and its seed."""

    prompt: bytes
    max_tokens: int
    seed: int


class Record(msgspec.Struct, frozen=True):
    """A request as it was submitted, with its seed, its token ids and ``shape``, the form of its answer.

    The first ``answers`` choices belong to ``prompt``; as many belong to each of the ``further`` prompts. ``sampling``
    and ``speculation`` are the serialized parameters of the first choice: the other choices differ in their seed and in
    the fields of `FurtherPrompt` alone. ``verifiers`` holds the instance of each choice's first verifier. ``created``
    is in seconds since 1970. A request that ``lingers`` goes on for a while without a reader; a ``background`` request
    goes on to its end. ``filters`` names the filters of the answer; ``calls`` and ``cache_salt`` are as in `Job`.
    """

    created: int
    served: ServedModel
    prompt: bytes
    sampling: bytes
    speculation: bytes
    seed: int
    choices: int
    lingers: bool
    shape: bytes
    priority: int = 0
    background: bool = False
    verifiers: list[str] = []
    further: list[FurtherPrompt] = []
    filters: tuple[str, ...] = ()
    calls: bool = False
    cache_salt: str = ""

    @classmethod
    def of(
        cls,
        jobs: list[Job],
        *,
        created: int,
        seed: int,
        lingers: bool,
        shape: bytes,
        background: bool = False,
        prompts: int = 1,
    ) -> Record:
        """The record of a request with ``prompts`` prompts; ``jobs`` has one job for each choice."""
        first, answers = jobs[0], len(jobs) // prompts
        return cls(
            created=created,
            served=first.served,
            prompt=pack_ids(first.prompt),
            sampling=first.sampling.SerializeToString(),
            speculation=first.speculation.SerializeToString(),
            seed=seed,
            choices=len(jobs),
            lingers=lingers,
            shape=shape,
            priority=first.priority,
            background=background,
            further=[_further(job) for job in jobs[answers::answers]],
            filters=first.filters,
            calls=first.calls,
            cache_salt=first.cache_salt,
        )

    def jobs(self, request: str, caller: Caller) -> list[Job]:
        """The jobs of the request, one for each choice, on behalf of ``caller``."""
        prompts = [unpack_ids(data) for data in self.prompts]
        return [
            Job(
                request_id=choice_id(request, choice),
                served=self.served,
                prompt=prompts[choice // self.answers],
                sampling=self._sampling(choice, seed),
                speculation=Speculation.FromString(self.speculation),
                caller=caller,
                priority=self.priority,
                filters=self.filters,
                calls=self.calls,
                cache_salt=self.cache_salt,
            )
            for choice, seed in enumerate(self.seeds)
        ]

    @classmethod
    def decode(cls, data: bytes) -> Record:
        """The record that `encode` wrote."""
        return _decode(data)

    def encode(self) -> bytes:
        """The record as bytes."""
        return _encode(self)

    def encode_for_verifier(self) -> bytes:
        """The record without what the verifier of each job knows anyway; all of it if there are several prompts."""
        if self.further:
            return _encode(self)
        return _encode(msgspec.structs.replace(self, prompt=b"", sampling=b"", speculation=b""))

    @classmethod
    def from_verifier(cls, data: bytes, prompt: bytes, sampling: bytes, speculation: bytes) -> Record:
        """The record that `encode_for_verifier` wrote, completed by the submission of any of its jobs."""
        record = _decode(data)
        if record.further:
            return record
        return msgspec.structs.replace(record, prompt=prompt, sampling=sampling, speculation=speculation)

    @property
    def answers(self) -> int:
        """Choices of each prompt."""
        return self.choices // len(self.prompts)

    @property
    def prompt_tokens(self) -> list[int]:
        """Prompt tokens of each choice."""
        return [len(data) // 4 for data in self.prompts for _ in range(self.answers)]

    @property
    def seeds(self) -> list[int]:
        """The seed of each choice."""
        each = [self.seed, *(other.seed for other in self.further)]
        return [choice_seed(seed, choice) for seed in each for choice in range(self.answers)]

    @property
    def first_indices(self) -> list[int]:
        """Index of each choice's first token in the answer; the tokens of an echoed prompt have indices below 0."""
        echo = SamplingParams.FromString(self.sampling).echo
        return [-tokens if echo else 0 for tokens in self.prompt_tokens]

    @property
    def prompts(self) -> list[bytes]:
        """The packed token ids of each prompt."""
        return [self.prompt, *(other.prompt for other in self.further)]

    def _sampling(self, choice: int, seed: int) -> SamplingParams:
        sampling = SamplingParams()
        sampling.ParseFromString(self.sampling)
        sampling.seed = seed & _UNSIGNED
        if choice >= self.answers:
            sampling.max_tokens = self.further[choice // self.answers - 1].max_tokens
        return sampling


def _further(job: Job) -> FurtherPrompt:
    """The prompt whose first choice is ``job``; its seed may be negative."""
    seed = job.sampling.seed
    return FurtherPrompt(pack_ids(job.prompt), job.sampling.max_tokens, seed if seed < _SIGN else seed - _UNSIGNED - 1)


def choice_id(request: str, choice: int) -> str:
    """The request id of one of a request's choices at verifiers."""
    return request if choice == 0 else f"{request}-{choice}"


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Record).decode
