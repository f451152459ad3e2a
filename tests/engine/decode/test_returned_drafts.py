"""Frames with the guesses of their step, for requests that ask for them."""

from __future__ import annotations

from pathlib import Path

from outrider.engine.decode.engine import Engine
from outrider.engine.requests.output import Draft, Output
from outrider.engine.requests.parameters import Speculation
from outrider.engine.requests.sequence import Request
from outrider.engine.sampling import Sampling
from outrider.engine.text import Tokenizer

from tests.engine.drafters import EverythingDrafter
from tests.engine.engines import MakeEngine

VOCABULARY = 7
DEPTH = 2


def frames(engine: Engine, *, return_drafts: bool = True, stop_ids: frozenset[int] = frozenset()) -> list[Output]:
    speculation = Speculation(return_drafts=return_drafts)
    engine.submit(Request("r", "t", [4], Sampling(1.0, seed=3), 20, stop_ids=stop_ids, speculation=speculation))
    said = []
    while engine.busy:
        said += [frame for _, frame in engine.step().outputs]
    return said


def everything(make_engine: MakeEngine) -> Engine:
    return make_engine(VOCABULARY, [EverythingDrafter(VOCABULARY, DEPTH)])


def one(frame: Output) -> Draft:
    assert frame.drafts is not None
    (draft,) = frame.drafts
    return draft


def test_the_accepted_path_goes_from_parent_to_child_and_says_the_tokens_that_were_guessed(
    make_engine: MakeEngine,
) -> None:
    said = frames(everything(make_engine))
    assert any(one(frame).accepted for frame in said)
    for frame in said:
        draft = one(frame)
        assert draft.first_index == frame.first_index
        path = draft.accepted
        assert [draft.parents[node] for node in path] == [-1, *path][: len(path)]
        guessed = [name for name in frame.guessed_by if name]
        assert [draft.tokens[node] for node in path] == frame.tokens[: len(guessed)]
        assert [draft.guessed_by[node] for node in path] == guessed


def test_every_guess_that_was_paid_for_is_told(make_engine: MakeEngine) -> None:
    said = frames(everything(make_engine))
    usage = said[-1].usage
    assert usage is not None
    trees = [one(frame) for frame in said]
    assert sum(len(tree.accepted) for tree in trees) == usage.accepted_tokens
    assert sum(len(tree.tokens) - len(tree.accepted) for tree in trees) == usage.rejected_tokens > 0


def test_tokens_are_told_with_their_bytes(make_engine: MakeEngine, tmp_path: Path) -> None:
    said = frames(everything(make_engine))
    table = Tokenizer.load(tmp_path / f"toy-{VOCABULARY}").single_token_bytes
    draft = next(one(frame) for frame in said if one(frame).tokens)
    assert draft.data == [table[token] for token in draft.tokens]


def test_what_an_answer_ends_before_is_not_accepted(make_engine: MakeEngine) -> None:
    free = [token for frame in frames(everything(make_engine)) for token in frame.tokens]
    said = frames(everything(make_engine), stop_ids=frozenset({free[1]}))
    draft = one(said[-1])
    assert [draft.tokens[node] for node in draft.accepted] == [
        token for token, name in zip(said[-1].tokens, said[-1].guessed_by, strict=True) if name
    ]


def test_a_step_without_guesses_tells_a_tree_without_nodes(make_engine: MakeEngine) -> None:
    said = frames(make_engine(VOCABULARY))
    assert [one(frame) for frame in said] == [Draft(place, [], [], [], [], []) for place in range(20)]


def test_nothing_is_told_to_who_does_not_ask(make_engine: MakeEngine) -> None:
    said = frames(everything(make_engine), return_drafts=False)
    assert all(frame.drafts is None for frame in said)
