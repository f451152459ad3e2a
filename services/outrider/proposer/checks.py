"""Checks what verifiers send: a drafter trusts its sessions, and a wrong one would end it for all verifiers."""

from __future__ import annotations

from collections.abc import Container

from outrider.engine.sampling import Sampling
from outrider.engine.speculation.trees.tree import MOST_NODES
from outrider.mesh.errors import InvalidRequest
from outrider.v1 import proposer_pb2 as pb
from outrider.v1 import sampling_pb2
from outrider.wire.bounds import OutOfBounds
from outrider.wire.ids import unpack_ids
from outrider.wire.sampling import SamplingParams


def sampling_of(message: sampling_pb2.SamplingParams) -> Sampling:
    """The parameters of draws in ``message``; `InvalidRequest` names one that is out of bounds."""
    try:
        asked = SamplingParams.from_proto(message, "opens.sampling.")
    except OutOfBounds as error:
        raise InvalidRequest(str(error), param=error.param) from None
    return Sampling.of(asked.temperature, asked.top_k, asked.top_p, asked.min_p, asked.seed)


def check_request(
    request: pb.DraftRequest, sessions: Container[int], vocabulary: int, state_bytes: int, context_length: int
) -> None:
    """Raises `InvalidRequest` for a message with a part that cannot be.

    Args:
        request: the message.
        sessions: the open ones of the stream.
        vocabulary: token ids are below.
        state_bytes: of a token's states; 0 where the drafter asked for none.
        context_length: the target's, in tokens.
    """
    opened = set[int]()
    for session in request.opens:
        if session.session in sessions or session.session in opened:
            raise InvalidRequest(f"opens: the session {session.session} is open already", param="opens")
        opened.add(session.session)
        _check_opening(session, vocabulary)
    for commit in request.commits:
        _check_tokens(commit.tokens, "commits", vocabulary)
    for states in request.states:
        _check_states(states, state_bytes, context_length)


def _check_opening(session: pb.OpenSession, vocabulary: int) -> None:
    count = _check_tokens(session.tokens, "opens", vocabulary)
    if not count or session.prompt > count:
        raise InvalidRequest(f"opens: {session.prompt} of {count} tokens cannot be the prompt", param="opens")
    if not 1 <= session.max_nodes <= MOST_NODES:
        raise InvalidRequest(f"opens: max_nodes must be 1 to {MOST_NODES}, not {session.max_nodes}", param="opens")
    sampling_of(session.sampling)


def _check_states(states: pb.HiddenStates, state_bytes: int, context_length: int) -> None:
    size = len(states.states)
    if not state_bytes:
        raise InvalidRequest("states: the drafter asked for none", param="states")
    if not size or size % state_bytes:
        raise InvalidRequest(f"states: {size} bytes; each token has {state_bytes}", param="states")
    if states.start + size // state_bytes > context_length:
        raise InvalidRequest(f"states: they end behind the target's {context_length} tokens", param="states")


def _check_tokens(data: bytes, param: str, vocabulary: int) -> int:
    """The number of tokens in ``data``."""
    try:
        tokens = unpack_ids(data)
    except ValueError as error:
        raise InvalidRequest(f"{param}: {error}", param=param) from None
    if tokens and not 0 <= min(tokens) <= max(tokens) < vocabulary:
        raise InvalidRequest(f"{param}: token ids must be 0 to {vocabulary - 1}", param=param)
    return len(tokens)
