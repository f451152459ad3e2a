"""The parameters of a generation: one struct, from every API of a gateway to the verifier.

A field of `SharedParameters` or `Guessing` is a parameter of every API, stands in the OpenAPI document with its
bounds, and crosses the wire in the field of the same name in ``sampling.proto``, where its meaning is described. A
default that is not zero or empty needs a field with presence (``optional``).
"""

from __future__ import annotations

from collections.abc import Collection
from operator import attrgetter
from typing import Annotated, Any, Self

import msgspec
from google.protobuf.message import Message
from msgspec import Meta
from outrider.v1 import sampling_pb2 as pb
from outrider.wire.bounds import (
    INT32,
    Flag,
    OutOfBounds,
    TokenId,
    integers,
    integers_from,
    numbers,
    numbers_above,
    read,
)
from outrider.wire.ids import pack_ids, unpack_ids

MOST_NODES = 63
"""Guesses of a sequence in one step: attention takes trees of 64 nodes, of which one is the sequence's last token."""
MOST_STOPS = 16
MOST_BIASES = 1024
MOST_BIAS = 100
MOST_ALLOWED = 1 << 16
MOST_BAD_WORDS = 1024
"""Sequences of tokens; a text becomes two, since a word may follow a space."""

UNSIGNED = (1 << 64) - 1
_SIGN = 1 << 63

Seed = Annotated[int, Meta(ge=-_SIGN, le=_SIGN - 1, description="an integer of 64 bits")]
Length = Annotated[int, Meta(ge=0, le=INT32, description="an integer of at least 1 (0 with echo)")]
Logprobs = Annotated[int, integers(0, 20)]
ShortText = Annotated[str, Meta(min_length=1, max_length=1000)]
BadWord = Annotated[tuple[TokenId, ...], Meta(min_length=1)]


Biases = Annotated[
    dict[TokenId, Annotated[float, numbers(-MOST_BIAS, MOST_BIAS)]],
    Meta(
        max_length=MOST_BIASES,
        description=f"an object of up to {MOST_BIASES} token ids with numbers from -{MOST_BIAS} to {MOST_BIAS}",
    ),
]


class SharedParameters(msgspec.Struct, frozen=True):
    """Parameters that have the same name and the same form in JSON and in the message ``SamplingParams``."""

    temperature: Annotated[float, numbers(0, 100)] = 1.0
    top_p: Annotated[float, numbers_above(0, 1)] = 1.0
    top_k: Annotated[int, integers_from(0, " (0 keeps all)")] = 0
    min_p: Annotated[float, numbers(0, 1)] = 0.0
    stop_token_ids: Annotated[
        tuple[TokenId, ...], Meta(max_length=64, description="an array of up to 64 token ids")
    ] = ()
    repetition_penalty: Annotated[float, numbers_above(0, 100)] = 1.0
    frequency_penalty: Annotated[float, numbers(-2, 2)] = 0.0
    presence_penalty: Annotated[float, numbers(-2, 2)] = 0.0
    logit_bias: Biases = {}
    min_tokens: Annotated[int, integers_from(0)] = 0
    ignore_eos: Flag = False
    allowed_token_ids: Annotated[
        tuple[TokenId, ...],
        Meta(min_length=1, max_length=MOST_ALLOWED, description=f"an array of 1 to {MOST_ALLOWED} token ids"),
    ] = ()
    repeat_last_n: Annotated[int, integers_from(-1, " (0 counts none, -1 all)")] | None = None
    include_stop_str_in_output: Flag = False
    skip_special_tokens: Flag = True


class SamplingParams(SharedParameters, frozen=True, kw_only=True):
    """All of the message's parameters: beside the shared ones, those that each API takes in a form of its own.

    ``seed`` is signed; the wire has the unsigned number of the same 64 bits. ``max_tokens`` None is as many as the
    context has room for.
    """

    seed: Seed = 0
    max_tokens: Length | None = None
    stop: Annotated[
        tuple[ShortText, ...],
        Meta(
            max_length=MOST_STOPS, description=f"an array of up to {MOST_STOPS} strings, each of 1 to 1000 characters"
        ),
    ] = ()
    bad_words: Annotated[
        tuple[BadWord, ...],
        Meta(max_length=MOST_BAD_WORDS, description=f"an array of up to {MOST_BAD_WORDS} sequences of token ids"),
    ] = ()
    logprobs: Logprobs | None = None
    echo: Flag = False
    grammar: pb.Grammar | None = None
    thought: pb.Thought | None = None

    @classmethod
    def of(cls, shared: SharedParameters, **more: Any) -> Self:
        """The ``shared`` parameters, with ``more`` by name; one that is None gets its default."""
        given = zip(_shared(shared), _NEUTRAL, strict=True)
        return cls(*[neutral if value is None else value for value, neutral in given], **more)

    @classmethod
    def from_proto(cls, message: pb.SamplingParams, place: str = "") -> Self:
        """The parameters in ``message``; `OutOfBounds` puts ``place`` before the name of one that is out of bounds."""
        return read(cls, set_sampling_fields(message), place)

    def to_proto(self) -> pb.SamplingParams:
        """The wire's form."""
        values = _set_values(self, _PRESENT)
        values["seed"] = self.seed & UNSIGNED
        if self.bad_words:
            values["bad_words"] = [pb.TokenSequence(ids=pack_ids(word)) for word in self.bad_words]
        return pb.SamplingParams(**values)


class Guessing(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which drafters may guess for a request, () for all, and how many guesses of it a step verifies at most.

    Of a ``private`` request nothing is learnt for later ones, and nothing guessed from earlier ones.
    """

    drafters: Annotated[tuple[str, ...], Meta(max_length=16, description="an array of up to 16 names")] = ()
    max_nodes: Annotated[int, integers(1, MOST_NODES)] | None = None
    private: Flag = False


class Speculation(Guessing, frozen=True, kw_only=True):
    """All of the protocol's ``Speculation``, with its switch ``off`` and the request to return the verified guesses."""

    off: Flag = False
    return_drafts: Flag = False

    @classmethod
    def from_proto(cls, message: pb.Speculation) -> Self:
        """The parameters in ``message``; `OutOfBounds` for one that is out of bounds."""
        return read(cls, set_fields(message), "speculation.")

    def to_proto(self) -> pb.Speculation:
        """The wire's form."""
        return pb.Speculation(**_set_values(self))


_PRESENT = frozenset(field.name for field in pb.SamplingParams.DESCRIPTOR.fields if field.has_presence)
_NEUTRAL = tuple(getattr(SharedParameters(), name) for name in SharedParameters.__struct_fields__)
_shared = attrgetter(*SharedParameters.__struct_fields__)


def _set_values(values: msgspec.Struct, present: Collection[str] = ()) -> dict[str, Any]:
    """``values`` by name, without the fields of default value that need not be sent: those not ``present``."""
    named = msgspec.structs.asdict(values).items()
    return {name: value for name, value in named if value or (value is not None and name in present)}


def set_fields(message: Message) -> dict[str, Any]:
    """The fields that ``message`` sets, by name: repeated ones as lists, maps as dictionaries, messages as they are."""
    values: dict[str, Any] = {}
    for field, value in message.ListFields():
        if not field.is_repeated:
            values[field.name] = value
        else:
            values[field.name] = dict(value) if hasattr(value, "items") else list(value)
    return values


def set_sampling_fields(message: pb.SamplingParams) -> dict[str, Any]:
    """Like `set_fields`, in the forms of `SamplingParams`, unchecked; `OutOfBounds` for malformed bad words."""
    values = set_fields(message)
    if "seed" in values:
        values["seed"] -= (values["seed"] & _SIGN) << 1
    if "bad_words" in values:
        values["bad_words"] = [ids_of(word.ids, "bad_words") for word in values["bad_words"]]
    return values


def ids_of(data: bytes, param: str) -> list[int]:
    """Token ids in a field that callers know as ``param``; `OutOfBounds` where its length is no multiple of 4."""
    try:
        return unpack_ids(data)
    except ValueError as error:
        raise OutOfBounds(f"{param}: {error}", param) from None
