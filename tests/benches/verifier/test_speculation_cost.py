"""In the benchmark of speculation's cost all engines answer alike, and the time of each is measured."""

from __future__ import annotations

from outrider.benches.verifier.speculation_cost import Case, RoundTime, compare, make_engines, one_round, prompt, texts


def test_all_modes_answer_the_same_prompts_and_are_held_against_plain_decoding() -> None:
    tokenizer, engines = make_engines(["off", "ngram"], 1)
    text, case = texts(tokenizer)[0], Case("edit", 0.0, 2)
    times = one_round(engines, case, [prompt("edit", text)] * 2, 24, 4)
    assert all(each.cpu > 0 and each.wall > 0 for each in times.values())
    tallies = {mode: mode_engine.engine.tally for mode, mode_engine in engines.items()}
    assert tallies["off"].tokens == tallies["ngram"].tokens == 48
    assert [set(tallies[mode].guesses.exposed) for mode in engines] == [set(), {"ngram"}]


def test_ratios_are_of_one_round_and_told_with_their_spread() -> None:
    rounds = [{"off": RoundTime(2.0 * each, 1.0), "on": RoundTime(1.0, 2.0)} for each in (1.0, 2.0, 3.0)]
    off, on = compare(Case("code", 1.0, 8), rounds)
    assert (off.cpu, off.wall) == ([1.0] * 3, [1.0] * 3)
    assert (on.cpu, on.wall) == ([2.0, 4.0, 6.0], [0.5] * 3)
