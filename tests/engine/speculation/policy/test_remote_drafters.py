"""Remote drafters count as active for a while after their last tree, for requests that admit them."""

from __future__ import annotations

from outrider.engine.requests.parameters import Speculation
from outrider.engine.requests.sequence import Sequence
from outrider.engine.speculation.policy.remote_drafters import RemoteDrafters

from tests.engine.engines import request


def test_a_drafter_that_sends_no_tree_for_five_seconds_is_forgotten() -> None:
    now = 0.0
    drafters = RemoteDrafters(lambda: now)
    sequence = Sequence.start(request("any"), 1, None)
    drafters.note_tree("model")
    now = 4.0
    drafters.note_tree("suffix")
    assert drafters.active([sequence]) == drafters.names == {"model", "suffix"}
    now = 5.0
    assert drafters.active([sequence]) == drafters.names == {"suffix"}
    drafters.note_tree("model")
    assert drafters.active([sequence]) == {"model", "suffix"}


def test_a_drafter_is_active_only_where_a_sequence_admits_it() -> None:
    drafters = RemoteDrafters(lambda: 0.0)
    drafters.note_tree("model")
    sequence = Sequence.start(request("other", speculation=Speculation(drafters=["suffix"])), 1, None)
    assert drafters.active([sequence]) == set()
    assert drafters.names == {"model"}
