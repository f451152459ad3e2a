"""Token frames: what a verifier publishes on NATS as it decides tokens (see docs/wire.md).

A frame is one MessagePack array, so that a reader in any language needs no schema compiler. Frames are
idempotent by ``(request, first_index)``: a reader keeps the next index it wants and drops tokens that it has.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum

import msgspec


class Finish(StrEnum):
    """Why a generation ended."""

    STOP = "stop"
    LENGTH = "length"
    CANCELLED = "cancelled"
    ERROR = "error"
    REFUSED = "refused"
    TIMEOUT = "timeout"
    FILTERED = "content_filter"


PREDICTION = "prediction"
"""Drafter of the guesses that a request's prediction holds."""
WITHHELD = -1
"""In the place of a token's id where the answer is filtered: an id would tell what the filter hides."""


class Usage(msgspec.Struct, array_like=True, frozen=True):
    """The cost of a request, in tokens. ``steps`` is how many times the target ran for its generated tokens.

    ``lossy`` says that guesses were accepted by a rule under which the answer's law is not the target's own.
    ``emitted`` tokens were generated elsewhere before; their cost is not counted here. ``verified[i]`` is the number of
    steps that verified guesses and accepted ``i`` of them, up to the depth of the deepest guess. ``predicted`` has the
    accepted and the rejected guesses of the request's prediction; None without one. ``reasoning_tokens`` are those of
    the thought and its marks.
    """

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0
    accepted_tokens: int = 0
    rejected_tokens: int = 0
    steps: int = 0
    lossy: bool = False
    emitted: int = 0
    verified: list[int] = []
    predicted: tuple[int, int] | None = None
    reasoning_tokens: int = 0

    @property
    def told_guesses(self) -> tuple[int, int]:
        """The accepted and the rejected guesses that clients are told: of the prediction, or without one of all."""
        return (self.accepted_tokens, self.rejected_tokens) if self.predicted is None else self.predicted


class Alternative(msgspec.Struct, array_like=True, frozen=True):
    """A likely token at some place: its id, the target's own natural log-probability of it, and its bytes."""

    token: int
    logprob: float
    data: bytes


class Likelihood(msgspec.Struct, array_like=True, frozen=True):
    """How likely a token was to the target: its natural log-probability before penalties, temperature and truncation.

    ``logprob`` is None for a prompt's first token, which has no token before it. ``data`` are the token's bytes.
    ``top`` lists the likeliest tokens at its place, likeliest first (the lower id on a tie), as many as were asked for.
    ``rank`` is the number of tokens at least as likely as the token; 0 with a ``logprob`` of None.
    """

    logprob: float | None
    data: bytes
    top: list[Alternative]
    rank: int = 0


class Draft(msgspec.Struct, array_like=True, frozen=True):
    """The tree of guesses that one step verified.

    Node ``i`` guesses the token ``tokens[i]``, whose bytes are ``data[i]``, behind its parent, the node ``parents[i]``,
    which stands before it; with the parent -1 it guesses the request's generated token ``first_index``.
    ``guessed_by[i]`` names its drafter. ``accepted`` lists the nodes that became tokens of the answer, from the top
    down.
    """

    first_index: int
    tokens: list[int]
    data: list[bytes]
    parents: list[int]
    guessed_by: list[str]
    accepted: list[int]


class Frame(msgspec.Struct, array_like=True, frozen=True):
    """Tokens ``first_index`` to ``first_index + len(tokens) - 1`` of a request's generated tokens.

    A prompt that is echoed stands before them: its last token has the index -1.

    ``texts[i]`` is the text that ``tokens[i]`` made final: empty while half a character or a possible stop string
    is held back. ``guessed_by[i]`` names the drafter that guessed ``tokens[i]``, or is empty where the target
    decided it alone. ``finish`` and ``usage`` are set on the last frame only; ``error`` only with ``Finish.ERROR`` and
    ``Finish.REFUSED`` (the request's own parameters leave no token to draw), with ``Finish.TIMEOUT`` (a deadline has
    passed; without ``usage`` where nothing was computed), and with a ``Finish.CANCELLED`` that is
    meant for every reader. ``likelihoods`` has one for each of ``tokens`` where they were asked
    for. ``verifier`` is the process that ended the request, on the last frame. ``drafts`` has the tree of the step that
    decided ``tokens`` where it was asked for, without nodes where nothing was guessed; those of several steps where
    frames were joined. ``stop`` is the stop string that ended the answer, on the last frame.

    The first ``thought`` of the tokens belong to a thought in front of the answer, and so do their texts; its marks
    have no text. ``embedding`` is that of the prompt where it is all that was asked for: little-endian float32
    [hidden_size] of length 1, in the only frame.

    In a filtered answer, ``texts[i]`` is what the filters let pass once they have read ``tokens[i]``, and ids are
    `WITHHELD`. Its last frame may hold a text behind those of its tokens. ``finish`` is ``Finish.FILTERED`` where a
    filter ended the answer.
    """

    request: str
    first_index: int
    tokens: list[int]
    texts: list[str]
    guessed_by: list[str]
    finish: Finish | None = None
    usage: Usage | None = None
    error: str | None = None
    likelihoods: list[Likelihood] | None = None
    verifier: str | None = None
    drafts: list[Draft] | None = None
    thought: int = 0
    stop: str | None = None
    embedding: bytes | None = None


BATCH_BYTES = 512 << 10
"""Most bytes of frames in one message; a broker takes messages of a megabyte as it is shipped."""

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Frame)
_tagged_decoder = msgspec.msgpack.Decoder(list[tuple[int, Frame]])
_end_decoder = msgspec.msgpack.Decoder(tuple[str, Frame])


def encode_frame(frame: Frame) -> bytes:
    """MessagePack bytes of ``frame``."""
    return _encoder.encode(frame)


def decode_frame(data: bytes) -> Frame:
    """Frame in ``data``; `msgspec.ValidationError` when it is not one."""
    return _decoder.decode(data)


def encode_tagged(frames: Sequence[tuple[int, bytes]], most_bytes: int = BATCH_BYTES) -> Iterator[bytes]:
    """Encoded frames for one gateway, each with the tag that the gateway gave its request, in as few messages.

    A message has at most ``most_bytes`` of frames, or one frame.
    """
    first = size = 0
    for place, (_, data) in enumerate(frames):
        if size + len(data) > most_bytes and place > first:
            yield _tagged(frames[first:place])
            first, size = place, 0
        size += len(data)
    yield _tagged(frames[first:])


def _tagged(frames: Sequence[tuple[int, bytes]]) -> bytes:
    return _encoder.encode([(tag, msgspec.Raw(data)) for tag, data in frames])


def decode_tagged(data: bytes) -> list[tuple[int, Frame]]:
    """Tags and frames in ``data``; `msgspec.ValidationError` when there are none."""
    return _tagged_decoder.decode(data)


def encode_end(subject: str, frame: Frame) -> bytes:
    """The last ``frame`` of the answer whose frames are on ``subject``, for all gateways."""
    return _encoder.encode((subject, frame))


def decode_end(data: bytes) -> tuple[str, Frame]:
    """What `encode_end` was given; `msgspec.ValidationError` when ``data`` is something else."""
    return _end_decoder.decode(data)


def frames_subject(gateway: str) -> str:
    """NATS subject on which a gateway, by its instance or ``*`` for all, gets the frames of its requests."""
    return f"frames.{gateway}"


def token_subject(tenant: str, request: str, *, unfiltered: bool = False) -> str:
    """NATS subject on which the frames of a request are published.

    ``unfiltered`` frames of an answer that a gateway filters have a subject that no client may read: ``!`` is in no
    tenant's name.
    """
    return f"tok.{tenant}!.{request}" if unfiltered else f"tok.{tenant}.{request}"
