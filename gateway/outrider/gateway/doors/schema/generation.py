"""What every one of OpenAI's requests for a generation may say."""

from __future__ import annotations

import secrets
from typing import Annotated, Literal

import msgspec
from msgspec import Meta
from outrider.gateway.admission.deadlines import Deadlines
from outrider.gateway.doors.schema.structure import StructuredOutputs
from outrider.gateway.requests.calling import Calling
from outrider.gateway.requests.request import Sampling, Speculation, Structure
from outrider.mesh.errors import InvalidRequest

INT32 = (1 << 31) - 1
_SEED_BITS = 53  # a returned seed survives clients whose numbers are doubles

Count = Annotated[int, Meta(ge=1, le=INT32, description="an integer of at least 1")]
Flag = Annotated[bool, Meta(description="true or false")]
TokenId = Annotated[int, Meta(ge=0, le=INT32)]
_StopString = Annotated[str, Meta(min_length=1, max_length=1000)]
_Penalty = Annotated[float, Meta(ge=-2, le=2, description="a number from -2 to 2")]
_Word = Annotated[str, Meta(min_length=1, max_length=1000)] | Annotated[list[TokenId], Meta(min_length=1)]


DAY_MS = 86_400_000
Milliseconds = Annotated[int, Meta(ge=1, le=DAY_MS, description=f"an integer from 1 to {DAY_MS}")]
_Name = Annotated[str, Meta(max_length=1024, description="a string of up to 1024 characters")]


class Guessing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``speculation`` as an object."""

    drafters: Annotated[list[str], Meta(max_length=16)] = []
    max_nodes: Annotated[int, Meta(ge=1, le=63)] | None = None


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What completions, chats and responses have in common."""

    model: Annotated[str, Meta(min_length=1, description="the name of a model")] | None = None
    temperature: Annotated[float, Meta(ge=0, le=100, description="a number from 0 to 100")] = 1.0
    top_p: Annotated[float, Meta(gt=0, le=1, description="a number above 0 and at most 1")] | None = None
    top_k: Annotated[int, Meta(ge=0, le=INT32, description="an integer of at least 0 (0 keeps all)")] = 0
    min_p: Annotated[float, Meta(ge=0, le=1, description="a number from 0 to 1")] = 0.0
    seed: Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1, description="an integer of 64 bits")] | None = None
    stop: Annotated[
        _StopString | Annotated[list[_StopString], Meta(max_length=16)],
        Meta(description="a string or an array of up to 16 strings, each of 1 to 1000 characters"),
    ] = []
    stop_token_ids: Annotated[list[TokenId], Meta(max_length=64, description="an array of up to 64 token ids")] = []
    repetition_penalty: Annotated[float, Meta(gt=0, le=100, description="a number above 0 and at most 100")] = 1.0
    frequency_penalty: _Penalty = 0.0
    presence_penalty: _Penalty = 0.0
    logit_bias: Annotated[
        dict[str, Annotated[float, Meta(ge=-100, le=100)]],
        Meta(max_length=1024, description="an object of up to 1024 token ids with numbers from -100 to 100"),
    ] = {}
    bad_words: Annotated[
        list[_Word], Meta(max_length=512, description="an array of up to 512 strings or arrays of token ids")
    ] = []
    structured_outputs: (
        Annotated[
            StructuredOutputs, Meta(description="an object with one of json, json_object, regex, choice and grammar")
        ]
        | None
    ) = None
    min_tokens: Annotated[int, Meta(ge=0, le=INT32, description="an integer of at least 0")] = 0
    stream: Flag = False
    ignore_eos: Flag = False
    speculation: Annotated[
        Literal["off"] | Guessing,
        Meta(description='"off", or an object with "drafters" (names) and "max_nodes" (1 to 63)'),
    ] = Guessing()
    return_tokens: Flag = False
    priority: Annotated[int, Meta(ge=-1000, le=1000, description="an integer from -1000 to 1000, lower ones first")] = 0
    ttft_ms: Milliseconds | None = None
    timeout_ms: Milliseconds | None = None
    coalesce: Flag = True
    user: _Name | None = None
    prompt_cache_key: _Name | None = None

    def _sampled(self, structure: Structure | None) -> Sampling:
        return Sampling(
            seed=secrets.randbits(_SEED_BITS) if self.seed is None else self.seed,
            temperature=self.temperature,
            top_k=self.top_k,
            top_p=self.top_p,
            min_p=self.min_p,
            stop=(self.stop,) if isinstance(self.stop, str) else tuple(self.stop),
            stop_token_ids=tuple(self.stop_token_ids),
            ignore_eos=self.ignore_eos,
            repetition_penalty=self.repetition_penalty,
            frequency_penalty=self.frequency_penalty,
            presence_penalty=self.presence_penalty,
            logit_bias={_token_id(name): bias for name, bias in self.logit_bias.items()},
            bad_words=tuple(self.bad_words),
            min_tokens=self.min_tokens,
            structure=structure,
        )

    def _spoken(self, calling: Calling, asked: Structure | None) -> Structure | None:
        """What of ``asked`` holds where functions may be called: of answers that have to be calls, nothing."""
        if self.structured_outputs is not None:
            name = "structured_outputs"
            raise InvalidRequest(f"{name} may not be given where functions may be called", param=name)
        return asked if calling.may_talk else None

    def _deadlines(self) -> Deadlines:
        return Deadlines.within(self.ttft_ms, self.timeout_ms)

    def _coalesces(self) -> bool:
        return self.coalesce and (self.seed is not None or self.temperature == 0)

    def _session(self) -> str:
        return self.prompt_cache_key or self.user or ""

    def _speculation(self) -> Speculation:
        if not isinstance(self.speculation, Guessing):
            return Speculation(off=True)
        return Speculation(drafters=tuple(self.speculation.drafters), max_nodes=self.speculation.max_nodes or 0)


def _token_id(name: str) -> int:
    if not name.isdecimal() or int(name) > INT32:
        raise InvalidRequest(f"logit_bias.{name}: {name!r} is no token id", param=f"logit_bias.{name}")
    return int(name)
