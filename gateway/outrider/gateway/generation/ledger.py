"""What has to be known of a streamed request for any gateway to go on with it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec
from outrider.gateway.admission.caller import Caller
from outrider.gateway.requests.models import Served
from outrider.gateway.requests.request import choice_seed
from outrider.gateway.routing.verifiers import Job
from outrider.mesh.bus import Bus, Journal, Kept
from outrider.mesh.errors import AlreadyExists, NotFound, Unavailable
from outrider.mesh.telemetry import get_logger
from outrider.v1.sampling_pb2 import SamplingParams, Speculation
from outrider.wire.frames import Frame, decode_frame, encode_frame
from outrider.wire.ids import pack_ids, unpack_ids

if TYPE_CHECKING:
    from outrider.gateway.settings import GatewaySettings

_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_PART = 512 << 10
"""Bytes of a record in one message: a long prompt is more than a broker takes at once."""
_UNSIGNED = (1 << 64) - 1
_SIGN = 1 << 63
_AT, _CLAIM, _GONE = "at", "claim", "gone"

_log = get_logger("ledger")


class Key(msgspec.Struct, frozen=True):
    """Names a request: nobody finds those of another tenant."""

    tenant: str
    request: str

    @classmethod
    def read(cls, tenant: str, request: str) -> Key:
        """The key of a request that a caller names; `NotFound` for what is no name."""
        if not _ID.fullmatch(request):
            raise NotFound("there is no such stream: ids are letters, digits, '-' and '_'", param="id")
        return cls(tenant, request)

    @property
    def bill(self) -> str:
        """Where what was charged for it is kept."""
        return f"{self.tenant}.{self.request}"

    def subject(self, part: str) -> str:
        """Where a part of its record is kept."""
        return f"ask.{self.tenant}.{self.request}.{part}"


class Further(msgspec.Struct, frozen=True):
    """A prompt of a request beside its first: its token ids, the most tokens of an answer to it, and its seed."""

    prompt: bytes
    max_tokens: int
    seed: int


class Record(msgspec.Struct, frozen=True):
    """A request as it was submitted, seed and token ids included, and ``shape``, the form of its answer.

    ``created`` is in seconds since 1970; ``lingers`` says that it goes on for a while without a reader, ``background``
    that it needs none. ``verifiers`` had its choices first, by instance. Of the choices' parameters only the
    first's are kept: the others differ from it in their seed, and in what is kept of ``further`` prompts. The first
    ``answers`` choices are those of ``prompt``; as many of each further one follow.
    """

    created: int
    served: Served
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
    further: list[Further] = []

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
        """The record of a request with so many ``prompts`` that has become ``jobs``, one for each choice."""
        first = jobs[0]
        sampling, speculation = first.sampling.SerializeToString(), first.speculation.SerializeToString()
        prompt = pack_ids(first.prompt)
        served, count, priority = first.served, len(jobs), first.priority
        further = [_further(job) for job in jobs[count // prompts :: count // prompts]]
        return cls(
            created,
            served,
            prompt,
            sampling,
            speculation,
            seed,
            count,
            lingers,
            shape,
            priority,
            background,
            further=further,
        )

    def jobs(self, request: str, caller: Caller) -> list[Job]:
        """The jobs again, as any verifier can take them, for ``caller``."""
        prompts = [unpack_ids(data) for data in self._prompts]
        return [
            Job(
                request_id=choice_id(request, choice),
                served=self.served,
                prompt=prompts[choice // self.answers],
                sampling=self._sampling(choice, seed),
                speculation=Speculation.FromString(self.speculation),
                caller=caller,
                priority=self.priority,
            )
            for choice, seed in enumerate(self.seeds)
        ]

    @property
    def rest(self) -> bytes:
        """What a verifier that has one of the jobs does not know; all of it where there are several prompts."""
        if self.further:
            return _encode(self)
        return _encode(msgspec.structs.replace(self, prompt=b"", sampling=b"", speculation=b""))

    @classmethod
    def whole(cls, rest: bytes, prompt: bytes, sampling: bytes, speculation: bytes) -> Record:
        """The record again, of its `rest` and of what the verifier of any of its jobs was asked."""
        record = _record(rest)
        if record.further:
            return record
        return msgspec.structs.replace(record, prompt=prompt, sampling=sampling, speculation=speculation)

    @property
    def answers(self) -> int:
        """How many choices a prompt has."""
        return self.choices // len(self._prompts)

    @property
    def prompt_tokens(self) -> list[int]:
        """Tokens of the prompt of each choice."""
        return [len(data) // 4 for data in self._prompts for _ in range(self.answers)]

    @property
    def seeds(self) -> list[int]:
        """The seed of each choice."""
        each = [self.seed, *(other.seed for other in self.further)]
        return [choice_seed(seed, choice) for seed in each for choice in range(self.answers)]

    @property
    def first_indices(self) -> list[int]:
        """Index of the first token of each choice that is told: an echoed prompt's stand below 0."""
        echo = SamplingParams.FromString(self.sampling).echo
        return [-tokens if echo else 0 for tokens in self.prompt_tokens]

    @property
    def _prompts(self) -> list[bytes]:
        return [self.prompt, *(other.prompt for other in self.further)]

    def _sampling(self, choice: int, seed: int) -> SamplingParams:
        sampling = SamplingParams()
        sampling.ParseFromString(self.sampling)
        sampling.seed = seed & _UNSIGNED
        if choice >= self.answers:
            sampling.max_tokens = self.further[choice // self.answers - 1].max_tokens
        return sampling


def _further(job: Job) -> Further:
    """The prompt of its first choice ``job``, whose seed may be negative."""
    seed = job.sampling.seed
    return Further(pack_ids(job.prompt), job.sampling.max_tokens, seed if seed < _SIGN else seed - _UNSIGNED - 1)


def choice_id(request: str, choice: int) -> str:
    """What verifiers know a request's choice as."""
    return request if choice == 0 else f"{request}-{choice}"


_encode = msgspec.msgpack.Encoder().encode
_record = msgspec.msgpack.Decoder(Record).decode
_names = msgspec.msgpack.Decoder(list[str]).decode


class Ledger:
    """Records of requests and the log of their frames, both in JetStream, for as long as an operator set.

    Nothing that a running stream needs waits for it: without JetStream only what reads it fails, with `Unavailable`.
    ``trouble`` says in a few words why it cannot be written at the moment; None where it can.
    """

    def __init__(self, bus: Bus, settings: GatewaySettings) -> None:
        bounds = settings.replay_s, settings.replay_bytes
        self._records = Journal(bus, Kept("outrider-requests", "ask.*.*.*", *bounds, last_only=True))
        self._frames = Journal(bus, Kept("outrider-tokens", "tok.*.*", *bounds))
        self._is_open = False
        self.trouble: str | None = "the broker was not asked yet"

    async def open(self) -> None:
        """Has the broker keep frames and records from now on; says in the log where it cannot."""
        try:
            await self._records.open()
            await self._frames.open()
            self._is_open, self.trouble = True, None
        except Unavailable as error:
            self.fail(error)

    async def tend(self) -> None:
        """Finds out whether the broker keeps frames and records, and has it do so again where it can."""
        if not self._is_open:
            return await self.open()
        try:
            await self._records.tend()
            await self._frames.tend()
            self.trouble = None
        except Unavailable as error:
            self.fail(error)

    def fail(self, error: Unavailable) -> None:
        """Notes that the broker did not take something; `tend` finds out when it does again."""
        if self.trouble != error.message:
            _log.warning("streams cannot be resumed", why=error.message)
        self.trouble = error.message

    async def claim(self, key: Key) -> None:
        """Makes the request's name its asker's; `AlreadyExists` where somebody has had it."""
        try:
            await self._records.add(key.subject(_CLAIM), b"", first=True)
        except AlreadyExists:
            raise AlreadyExists("there is a request of this id already", param="request_id") from None

    async def enter(self, key: Key, record: Record) -> None:
        """Writes the record of a new request, and who has its choices."""
        data = _encode(record)
        parts = [data[start : start + _PART] for start in range(0, len(data), _PART)]
        await asyncio.gather(
            *(self._records.add(key.subject(f"{place}-{len(parts)}"), part) for place, part in enumerate(parts))
        )

    async def place(self, key: Key, verifiers: Sequence[str]) -> None:
        """Writes who has each of an entered request's choices now, by instance."""
        await self._records.add(key.subject(_AT), _encode(verifiers))

    async def find(self, key: Key) -> tuple[Record, list[str]]:
        """A request, and who was written to have its choices (nobody is ""); `NotFound` where nothing is known."""
        found = dict(await self._records.read(key.subject("*")))
        if key.subject(_GONE) in found:
            raise _unknown()
        at = found.pop(key.subject(_AT), None)
        found.pop(key.subject(_CLAIM), None)
        count = len(found)
        parts = [found.get(key.subject(f"{place}-{count}"), b"") for place in range(count)]
        if not all(parts) or not parts:
            raise _unknown()
        record = _record(b"".join(parts))
        return record, _names(at) if at is not None else record.verifiers or [""] * record.choices

    async def frames(self, job: Job) -> list[Frame]:
        """The frames of a job that were kept, in the order of their publication."""
        return [decode_frame(data) for _, data in await self._frames.read(job.subject)]

    async def end(self, job: Job, frame: Frame) -> None:
        """Publishes the last frame of a job, and returns when it is kept."""
        await self._frames.add(job.subject, encode_frame(frame))

    async def forget(self, key: Key, jobs: list[Job]) -> None:
        """Drops a request and its frames."""
        if not await self._records.forget(key.subject("*")):
            await self._records.add(key.subject(_GONE), b"")
        for job in jobs:
            await self._frames.forget(job.subject)


def _unknown() -> NotFound:
    return NotFound("there is no such stream: it was never begun, is too old, or was cancelled", param="id")
