"""States of sizes and places that cannot be."""

from __future__ import annotations

import pytest
from outrider.mesh.errors import InvalidRequest
from outrider.proposer.checks import check_request
from outrider.v1 import proposer_pb2 as pb

_TOKEN, _CONTEXT = 12, 100


def check(start: int, size: int, token: int = _TOKEN) -> None:
    states = pb.HiddenStates(session=1, start=start, states=bytes(size))
    check_request(pb.DraftRequest(states=[states]), {1}, 50, token, _CONTEXT)


def test_states_of_whole_tokens_inside_the_context_are_taken() -> None:
    check(0, _TOKEN)
    check(98, 2 * _TOKEN)


@pytest.mark.parametrize(
    ("start", "size", "token", "why"),
    [
        (0, 0, _TOKEN, "0 bytes; each token has 12"),
        (0, 13, _TOKEN, "13 bytes"),
        (99, 2 * _TOKEN, _TOKEN, "behind the target's 100 tokens"),
        (2**32 - 1, _TOKEN, _TOKEN, "behind the target's 100 tokens"),
        (0, _TOKEN, 0, "asked for none"),
    ],
)
def test_other_states_are_refused(start: int, size: int, token: int, why: str) -> None:
    with pytest.raises(InvalidRequest, match=why):
        check(start, size, token)
