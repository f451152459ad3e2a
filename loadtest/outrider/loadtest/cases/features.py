"""The features of a request, and cases in which every pair of their values occurs."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

Case = dict[str, str]
"""A value for each of `FEATURES`."""
FEATURES: dict[str, tuple[str, ...]] = {
    "api": ("chat", "responses", "messages"),
    "thinking": ("unsaid", "on", "off"),
    "budget": ("none", "0", "12"),
    "effort": ("none", "low", "off"),
    "thought": ("shown", "hidden"),
    "tools": ("none", "auto", "required", "named", "allowed"),
    "parallel": ("yes", "no"),
    "structure": ("none", "schema", "object", "regex"),
    "stop": ("none", "line", "bracket", "word"),
    "n": ("1", "2"),
    "logprobs": ("none", "2"),
    "temperature": ("0", "0.8"),
    "history": ("none", "calls"),
    "max_tokens": ("32", "64", "96"),
}
"""Names of values by feature; the first one of each is the neutral one."""
_ONLY: dict[tuple[str, str], set[str]] = {
    ("n", "2"): {"chat"},
    ("logprobs", "2"): {"chat", "responses"},
    ("effort", "low"): {"chat", "responses"},
    ("effort", "off"): {"chat", "responses"},
    ("budget", "0"): {"chat", "messages"},
    ("budget", "12"): {"chat", "messages"},
    ("structure", "object"): {"chat", "responses"},
    ("tools", "allowed"): {"chat", "responses"},
}
"""The APIs that have a value, where not all have."""
_TRIED = 40
"""Possible cases among which the next one is taken."""


def cases(count: int, seed: int = 0) -> list[Case]:
    """``count`` cases drawn with ``seed``, without repetition at the beginning: each next one adds most new pairs."""
    draw, made, known = random.Random(seed), list[Case](), set[tuple[object, ...]]()
    while len(made) < count:
        tried = list(itertools.islice(_possible_draws(draw), _TRIED))
        best = max(tried, key=lambda case: len(pairs(case) - known))
        known |= pairs(best)
        made.append(best)
    return made


def pairs(case: Case) -> set[tuple[object, ...]]:
    """The pairs of values in ``case``."""
    return set(itertools.combinations(case.items(), 2))


def possible(case: Case) -> bool:
    """Whether an API takes the values together."""
    calls = case["tools"] != "none"
    return (
        all(case["api"] in apis for (name, value), apis in _ONLY.items() if case[name] == value)
        and (calls or case["parallel"] == "yes")
        and not (calls and case["structure"] == "regex")
        and not (case["api"] == "messages" and case["budget"] != "none" and case["thinking"] != "on")
        and not (case["api"] == "messages" and case["thought"] == "hidden" and case["thinking"] == "unsaid")
    )


def possible_pairs() -> set[tuple[object, ...]]:
    """All pairs of values that some possible case has."""
    found = set[tuple[object, ...]]()
    for (one, values), (other, others) in itertools.combinations(FEATURES.items(), 2):
        for value, another in itertools.product(values, others):
            if any(possible(case) for case in _completions({one: value, other: another})):
                found.add(((one, value), (other, another)))
    return found


def _completions(given: Case) -> Iterator[Case]:
    """Cases with the ``given`` values, over all values of the features on which `possible` depends."""
    free = [name for name in ("api", "thinking", "tools") if name not in given]
    neutral = {name: values[0] for name, values in FEATURES.items()}
    for chosen in itertools.product(*(FEATURES[name] for name in free)):
        yield neutral | dict(zip(free, chosen, strict=True)) | given


def _possible_draws(draw: random.Random) -> Iterator[Case]:
    while True:
        case = {name: draw.choice(values) for name, values in FEATURES.items()}
        if possible(case):
            yield case
