"""The suffix drafter: its automaton against plain counts, and its memory of tenants' answers."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from outrider.engine.sampling import Sampling
from outrider.engine.speculation import DrafterContext, DrafterError, DraftTree, Opening
from outrider.engine.speculation.drafters.plain_suffixes import PlainSuffixes
from outrider.engine.speculation.drafters.suffix_automaton import SuffixAutomaton
from outrider.engine.speculation.drafters.suffix_drafter import SuffixDrafter
from outrider.kernels import backend
from outrider.native.suffixes import NativeSuffixes

TEXTS = st.lists(st.integers(0, 2), max_size=14)


def automaton(text: Sequence[int]) -> SuffixAutomaton:
    made = SuffixAutomaton()
    for token in text:
        made.append(token)
    return made


def followers_by_hand(text: Sequence[int], run: Sequence[int]) -> Counter[int]:
    size = len(run)
    return Counter(text[i + size] for i in range(len(text) - size) if list(text[i : i + size]) == list(run))


def followers(made: SuffixAutomaton, state: int) -> dict[int, int]:
    counted, total = made.followers(state, 9)
    assert total == sum(count for count, _, _ in counted)
    assert [count for count, _, _ in counted] == sorted((count for count, _, _ in counted), reverse=True)
    return {token: count for count, token, _ in counted}


@given(TEXTS)
def test_every_run_is_found_with_how_often_each_token_followed_it(text: list[int]) -> None:
    made = automaton(text)
    for start in range(len(text)):
        for end in range(start + 1, len(text) + 1):
            state, length = made.ROOT, 0
            for token in text[start:end]:
                state, length = made.step(state, length, token)
            assert length == end - start
            assert followers(made, state) == followers_by_hand(text, text[start:end])


@given(TEXTS)
def test_the_longest_repeated_end_is_known_after_every_token(text: list[int]) -> None:
    made = SuffixAutomaton()
    for end, token in enumerate(text, start=1):
        made.append(token)
        state, length = made.repeated()
        so_far = text[:end]
        runs = (size for size in range(end - 1, 0, -1) if followers_by_hand(so_far, so_far[end - size :]))
        assert length == next(runs, 0)
        if length:
            assert followers(made, state) == followers_by_hand(so_far, so_far[end - length :])


@pytest.mark.parametrize("seed", range(60))
def test_a_reader_keeps_its_place_while_the_text_grows(seed: int) -> None:
    dice = random.Random(seed)
    text, read = ([dice.randrange(3) for _ in range(40)] for _ in range(2))
    made, written, state, length = SuffixAutomaton(), 0, 0, 0
    for done, token in enumerate(read, start=1):
        grown = min(written + dice.randint(0, 3), len(text))
        for more in text[written:grown]:
            made.append(more)
        written = grown
        state, length = made.step(state, length, token)
        run, so_far = read[done - length : done], text[:written]
        assert not length or followers(made, state) == followers_by_hand(so_far, run)


def test_a_text_that_repeats_one_token_costs_no_more_than_another() -> None:
    made = automaton([7] * 3000)
    counted, _ = made.followers(made.repeated()[0], 4)
    assert [token for _, token, _ in counted] == [7]


Make = Callable[..., SuffixDrafter]


@pytest.fixture(params=["native", "torch"])
def drafter(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Make:
    """Makes drafters that run in compiled code and in none."""
    monkeypatch.setattr(backend, "choice", lambda: request.param)

    def make(**options: object) -> SuffixDrafter:
        made = SuffixDrafter(DrafterContext("v", 1000, 4096, options=options))
        assert isinstance(made._suffixes, NativeSuffixes if request.param == "native" else PlainSuffixes)
        return made

    return make


def opening(tokens: Sequence[int], tenant: str = "t", prompt: int = 0, *, private: bool = False) -> Opening:
    return Opening(tokens, Sampling(0.0), 31, tenant, prompt, private=private)


def paths(tree: DraftTree) -> set[tuple[int, ...]]:
    found_paths: list[tuple[int, ...]] = []
    for token, parent in zip(tree.tokens, tree.parents, strict=True):
        found_paths.append((*(found_paths[parent] if parent >= 0 else ()), token))
    assert len(set(found_paths)) == len(found_paths)
    return set(found_paths)


def test_a_more_frequent_follower_has_a_higher_confidence(drafter: Make) -> None:
    made = drafter()
    made.open(1, opening([1, 2, 5, 1, 2, 5, 1, 2, 6, 1, 2]))
    [(_, tree)] = made.draft()
    first = {
        token: sure
        for token, parent, sure in zip(tree.tokens, tree.parents, tree.confidences, strict=True)
        if parent < 0
    }
    assert first.keys() == {5, 6}
    assert first[5] > first[6]
    assert {(5, 1, 2), (6, 1, 2)} <= paths(tree)


def test_a_guess_is_as_sure_as_the_match_before_it_is_long_and_as_often_as_it_followed(drafter: Make) -> None:
    made = drafter()
    made.open(1, opening([9, 1, 2, 3, 4, 5, 8, 1, 2, 3]))
    [(_, tree)] = made.draft()
    assert list(tree.tokens)[:3] == [4, 5, 8]
    assert tree.confidences[:3] == pytest.approx([1 - 1 / 3, 1 - 1 / 4, 1 - 1 / 5], abs=1e-3)
    made.open(2, opening([1, 2, 5, 7, 1, 2, 5, 8, 1, 2, 6, 9, 1, 2]))
    tree = next(tree for number, tree in made.draft() if number == 2)
    first = {
        token: sure
        for token, parent, sure in zip(tree.tokens, tree.parents, tree.confidences, strict=True)
        if parent < 0
    }
    assert first == pytest.approx({5: 2 / 3 * (1 - 1 / 2), 6: 1 / 3 * (1 - 1 / 2)}, abs=1e-3)


def answer(made: SuffixDrafter, session: int, tokens: Sequence[int], tenant: str) -> None:
    """Lets a sequence of ``tenant`` say ``tokens``."""
    made.open(session, opening([900 + session], tenant, prompt=1))
    made.commit(session, 1, tokens)
    made.close(session)
    made.draft()


def guesses(made: SuffixDrafter, session: int, tokens: Sequence[int], tenant: str) -> set[tuple[int, ...]]:
    made.open(session, opening(tokens, tenant))
    trees = made.draft()
    made.close(session)
    return paths(trees[0][1]) if trees else set()


def test_guesses_come_from_a_tenants_own_answers_only(drafter: Make) -> None:
    made = drafter()
    answer(made, 1, [10, 11, 12, 13, 14], "red")
    assert (12, 13, 14) in guesses(made, 2, [500, 10, 11], "red")
    assert guesses(made, 3, [500, 10, 11], "blue") == set()
    assert guesses(made, 4, [500, 10, 11], "") == guesses(made, 5, [500, 10, 11], "red\0") == set()


def test_nothing_is_learnt_from_private_sequences_nor_shown_to_them(drafter: Make) -> None:
    made = drafter(tenants=1)
    answer(made, 1, [10, 11, 12, 13, 14], "red")
    made.open(2, opening([500, 10, 11], "red", private=True))
    assert made.draft() == []
    made.commit(2, 3, [20, 21, 22, 500, 10, 11])
    (own,) = made.draft()
    assert (20, 21, 22) in paths(own[1])
    made.close(2)
    made.close(2)
    assert made.draft() == []
    assert guesses(made, 3, [500, 20, 21], "red") == set()
    assert (12, 13, 14) in guesses(made, 4, [500, 10, 11], "red")


def test_a_private_sequence_leaves_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend, "choice", lambda: "native")
    made = SuffixDrafter(DrafterContext("v", 1000, 4096))
    assert isinstance(made._suffixes, NativeSuffixes)
    before = made._suffixes.bytes
    made.open(1, opening(list(range(1000)), "red", private=True))
    made.draft()
    assert made._suffixes.bytes > before
    made.close(1)
    made.draft()
    assert made._suffixes.bytes == before


def test_prompts_are_not_remembered(drafter: Make) -> None:
    made = drafter()
    made.open(1, opening([10, 11, 12, 13], "red", prompt=4))
    made.commit(1, 4, [20])
    made.close(1)
    made.draft()
    assert guesses(made, 2, [500, 10, 11], "red") == set()


def test_a_guess_never_leads_from_one_answer_into_the_next(drafter: Make) -> None:
    made = drafter()
    answer(made, 1, [10, 11, 12], "red")
    answer(made, 2, [40, 41, 42], "red")
    assert guesses(made, 3, [10, 11], "red") == {(12,)}
    assert guesses(made, 4, [11, 12], "red") == set()


def test_the_oldest_answers_and_the_longest_silent_tenants_are_forgotten(drafter: Make) -> None:
    made = drafter(tokens=200, tenants=2)
    answer(made, 1, [10, 11, 12], "red")
    for session in range(2, 12):
        answer(
            made, session, [20 + session, 21 + session, *range(100 * session % 900, 100 * session % 900 + 48)], "red"
        )
    assert guesses(made, 50, [10, 11], "red") == set()
    assert guesses(made, 51, [31, 32], "red")
    for session, tenant in enumerate(("blue", "green"), start=60):
        answer(made, session, [1, 2, 3], tenant)
    assert guesses(made, 70, [31, 32], "red") == set()
    assert guesses(made, 71, [1, 2], "blue") == guesses(made, 72, [1, 2], "green") == {(3,)}


def test_a_sequence_continues_after_its_matches_are_forgotten(drafter: Make) -> None:
    made = drafter(tokens=60)
    made.open(1, opening([1, 2, 3], "red"))
    for session in range(2, 20):
        answer(made, session, [session * 40 + place for place in range(20)], "red")
        made.commit(1, 3 + 2 * (session - 2), [session * 40, session * 40 + 1])
        [(_, tree)] = made.draft()
        assert (session * 40 + 2,) in paths(tree)


def test_long_prompts_are_taken_in_a_part_at_a_time(drafter: Make) -> None:
    made = drafter()
    made.open(1, opening(list(range(900)) * 4))
    rounds = 1
    while not (trees := made.draft()):
        rounds += 1
    assert rounds == 4
    assert list(trees[0][1].tokens)[:3] == [0, 1, 2]


@pytest.mark.parametrize("value", [0, -1, "8", 1.5, True, 2**31])
def test_an_option_that_is_no_count_is_refused(drafter: Make, value: object) -> None:
    for option in ("nodes", "least_match", "tokens", "tenants"):
        with pytest.raises(DrafterError, match=f"{option} is {value!r}"):
            drafter(**{option: value})


def test_answers_are_forgotten_after_two_calls_without_a_session_of_their_tenant() -> None:
    drafter = SuffixDrafter(DrafterContext("", 100, 4096))

    def guesses(tenant: str) -> int:
        drafter.open(9, Opening([7, 8, 9], Sampling(0.0), 16, tenant, 3))
        found = sum(len(tree.tokens) for _, tree in drafter.draft())
        return found

    drafter.open(1, Opening([7, 8, 9, 10, 11, 12], Sampling(0.0), 16, "t", 0))
    drafter.close(1)
    drafter.draft()
    drafter.expire()
    assert guesses("t") > 0
    drafter.close(9)
    drafter.draft()
    for _ in range(2):
        drafter.expire()
    drafter.expire()
    assert guesses("t") == 0
