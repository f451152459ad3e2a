"""The load test of routers: its prompts, and the tokens computed with a router."""

from __future__ import annotations

import pytest
from outrider.loadtest.experiments.routing import ConversationLoad, main, measure


def test_every_turn_begins_as_the_one_before_and_conversations_differ() -> None:
    load = ConversationLoad(share=2, conversations=2, turns=3, begin=6, more=4, answer=1)
    first, second = load.prompts(0), load.prompts(1)
    assert [len(prompt) for prompt in first] == [8, 12, 16]
    assert first[2][:12] == first[1]
    assert first[0][:2] == second[0][:2]
    assert first[0][2:] != second[0][2:]
    assert load.prompt_tokens == 2 * (8 + 12 + 16)


def test_options_below_one_are_refused() -> None:
    with pytest.raises(SystemExit):
        main(["--turns", "0"])


def test_prefix_has_no_page_of_a_conversation_computed_twice() -> None:
    load = ConversationLoad(share=32, conversations=3, turns=3, begin=64, more=16, answer=2)
    outcome = measure(load, "prefix")
    assert outcome.computed <= 2 * 32 + 3 * (64 + 2 * (16 + 16 + 1))
    assert outcome.computed + outcome.found == load.prompt_tokens
