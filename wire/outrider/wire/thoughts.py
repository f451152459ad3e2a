"""How models mark off the thoughts in front of their answers: tokenizers announce the marks, requests carry them."""

from __future__ import annotations

import msgspec
from outrider.v1 import sampling_pb2 as pb
from outrider.wire.ids import pack_ids


class ThoughtMark(msgspec.Struct, frozen=True):
    """A mark, as ``Mark`` of ``sampling.proto``."""

    ids: tuple[int, ...]
    text: str = ""

    def to_proto(self) -> pb.Mark:
        """The wire's form."""
        return pb.Mark(ids=pack_ids(self.ids), text=self.text)


class ThoughtStyle(msgspec.Struct, frozen=True):
    """The marks of one model, as in ``Thought``; its tokenizer announces them in its status under ``thoughts``."""

    start: ThoughtMark
    end: ThoughtMark
    plain: ThoughtMark | None = None

    def to_proto(self, budget: int | None) -> pb.Thought:
        """The wire's form, for a thought of up to ``budget`` tokens."""
        plain = None if self.plain is None else self.plain.to_proto()
        return pb.Thought(start=self.start.to_proto(), end=self.end.to_proto(), plain=plain, budget=budget)
