"""The benchmark of what speculation costs has all engines answer alike, and counts what each takes."""

from __future__ import annotations

from outrider.verifier.bench.worth import Case, Spent, compare, make_lanes, one_round, prompt, texts


def test_all_modes_answer_the_same_prompts_and_are_held_against_plain_decoding() -> None:
    tokenizer, lanes = make_lanes(["off", "ngram"], 1)
    text, case = texts(tokenizer)[0], Case("edit", 0.0, 2)
    spent = one_round(lanes, case, [prompt("edit", text)] * 2, 24, 4)
    assert all(each.cpu > 0 and each.wall > 0 for each in spent.values())
    tallies = {mode: lane.engine.tally for mode, lane in lanes.items()}
    assert tallies["off"].tokens == tallies["ngram"].tokens == 48
    assert [set(tallies[mode].guesses.exposed) for mode in lanes] == [set(), {"ngram"}]


def test_ratios_are_of_one_round_and_told_with_their_spread() -> None:
    rounds = [{"off": Spent(2.0 * each, 1.0), "on": Spent(1.0, 2.0)} for each in (1.0, 2.0, 3.0)]
    off, on = compare(Case("code", 1.0, 8), rounds)
    assert (off.cpu, off.wall) == ([1.0] * 3, [1.0] * 3)
    assert (on.cpu, on.wall) == ([2.0, 4.0, 6.0], [0.5] * 3)
