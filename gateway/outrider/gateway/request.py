"""One generation as every front door of the gateway asks for it."""

from __future__ import annotations

import msgspec
from outrider.v1.sampling_pb2 import SamplingParams
from outrider.v1.sampling_pb2 import Speculation as SpeculationProto

_SEED_MASK = (1 << 64) - 1


class Text(msgspec.Struct, frozen=True):
    """A prompt of plain text."""

    text: str


class Messages(msgspec.Struct, frozen=True):
    """A chat: messages as a JSON array."""

    json: str


class Tokens(msgspec.Struct, frozen=True):
    """A prompt that is tokenized already."""

    ids: list[int]


Prompt = Text | Messages | Tokens


class Sampling(msgspec.Struct, frozen=True):
    """How the target draws; fields and ranges as in ``sampling.proto``."""

    seed: int
    temperature: float = 1.0
    top_k: int = 0
    top_p: float | None = None
    min_p: float = 0.0
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False

    def to_proto(self, max_tokens: int) -> SamplingParams:
        """The wire's form, with the most tokens to generate."""
        return SamplingParams(
            temperature=self.temperature,
            top_k=self.top_k,
            top_p=self.top_p,
            min_p=self.min_p,
            seed=self.seed & _SEED_MASK,
            max_tokens=max_tokens,
            stop=self.stop,
            stop_token_ids=self.stop_token_ids,
            ignore_eos=self.ignore_eos,
        )


class Speculation(msgspec.Struct, frozen=True):
    """How a request may be guessed ahead; no drafters named means all there are, 0 nodes the verifier's choice."""

    off: bool = False
    drafters: tuple[str, ...] = ()
    max_nodes: int = 0

    def to_proto(self) -> SpeculationProto:
        """The wire's form."""
        return SpeculationProto(off=self.off, drafters=self.drafters, max_nodes=self.max_nodes)


class Generation(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be generated.

    ``model`` None means the only one there is, ``max_tokens`` None as much as the context has room for.
    """

    model: str | None
    prompt: Prompt
    sampling: Sampling
    speculation: Speculation = Speculation()
    max_tokens: int | None = None
    tenant: str = "default"
