"""Reassembly of frames, compared with the tokens that they were cut from."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from outrider.gateway.stream.reassembly import Reassembly, join, split
from outrider.wire.frames import Draft, Finish, Frame, Likelihood, Usage

_LENGTH, _THOUGHT = 12, 5
_spans = st.tuples(st.integers(0, _LENGTH - 1), st.integers(0, _LENGTH)).map(lambda pair: (pair[0], max(pair)))


def _frame(start: int, end: int) -> Frame:
    numbers = range(start, end)
    finish = Finish.LENGTH if end == _LENGTH else None
    likely = [Likelihood(-float(n), b"", []) for n in numbers]
    return Frame(
        "r",
        start,
        list(numbers),
        [f"<{n}>" for n in numbers],
        ["d" * (n % 2) for n in numbers],
        finish,
        likelihoods=likely or None,
        drafts=[Draft(n, [n], [b""], [-1], ["d"], []) for n in numbers] or None,
        thought=sum(n < _THOUGHT for n in numbers),
    )


@given(st.lists(_spans, max_size=30))
def test_any_mixture_of_fitting_frames_gives_each_token_once(spans: list[tuple[int, int]]) -> None:
    held = Reassembly()
    taken: list[Frame] = []
    for start, end in spans:
        frame = _frame(start, end)
        if held.fits(frame) and (fresh := held.take(frame)) is not None:
            taken.append(fresh)
            if fresh.finish:
                break
    assert held.tokens == list(range(held.next_index))
    if taken:
        whole = join(taken)
        assert whole == _frame(0, held.next_index)


def test_a_frame_after_a_gap_does_not_fit() -> None:
    held = Reassembly()
    held.take(_frame(0, 3))
    assert held.fits(_frame(3, 5))
    assert not held.fits(_frame(4, 5))


def test_a_repeated_last_frame_still_says_that_it_is_the_last() -> None:
    held = Reassembly()
    held.take(_frame(0, 3))
    fresh = held.take(Frame("r", 1, [1, 2], ["", ""], ["", ""], Finish.STOP))
    assert fresh == Frame("r", 3, [], [], [], Finish.STOP)


def test_a_source_that_repeats_the_past_is_behind() -> None:
    held = Reassembly()
    held.take(_frame(0, 6))
    assert not held.reaches(_frame(2, 5))
    assert held.reaches(_frame(2, 6))
    assert held.reaches(_frame(6, 8))


def test_an_echoed_prompt_stands_before_the_generated_tokens() -> None:
    held = Reassembly(prompt=3)
    assert held.next_index == -3
    assert held.take(Frame("r", -3, [7, 8], ["", ""], ["", ""])) is not None
    assert not held.fits(Frame("r", 0, [1], [""], [""]))
    fresh = held.take(Frame("r", -2, [8, 9, 1], ["", "", ""], ["", "", "d"]))
    assert fresh == Frame("r", -1, [9, 1], ["", ""], ["", "d"])
    assert (held.tokens, held.generated) == ([7, 8, 9, 1], [1])


def test_what_a_lost_verifier_did_is_counted_with_what_the_last_one_tells() -> None:
    held = Reassembly(prompt=1)
    for start, end in ((-1, 0), (0, 3), (3, 4), (4, 7)):
        held.take(_frame(start, end))
    last = Frame("r", 7, [], [], [], Finish.STOP, Usage(5, 3, accepted_tokens=1, steps=2, emitted=4))
    usage = held.complete(last).usage
    assert usage is not None
    assert (usage.completion_tokens, usage.accepted_tokens, usage.steps) == (7, 1 + 2, 2 + 2)
    assert held.complete(_frame(0, 1)) == _frame(0, 1)


def test_guesses_of_a_prediction_at_a_lost_verifier_are_counted_as_such() -> None:
    held = Reassembly()
    held.take(Frame("r", 0, [1, 2, 3], ["", "", ""], ["prediction", "ngram", ""]))
    last = Frame("r", 3, [4], [""], [""], Finish.STOP, Usage(5, 4, 2, 2, 3, 1, emitted=3, predicted=(1, 2)))
    held.take(last)
    usage = held.complete(last).usage
    assert usage is not None
    assert (usage.accepted_tokens, usage.predicted, usage.told_guesses) == (2 + 2, (1 + 1, 2), (2, 2))
    assert Usage(5, 4, 2, 2, 3).told_guesses == (2, 3)


@given(_spans, st.integers(0, _LENGTH))
def test_a_split_frame_joins_to_what_it_was(span: tuple[int, int], count: int) -> None:
    frame = _frame(*span)
    head, rest = split(frame, min(count, len(frame.tokens)))
    assert head.finish is None
    assert join([head, rest]) == frame
