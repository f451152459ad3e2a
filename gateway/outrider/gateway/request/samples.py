"""What rules of abuse look at in a generation."""

from __future__ import annotations

from collections.abc import Hashable

from outrider.gateway.abuse.sample import Sample
from outrider.gateway.request.generation import Generation, Messages, Prompt, Text

_BEGINNING = 256
"""Characters at the beginning of a prompt, or tokens, that are compared."""
_SHORT = 4
"""Most tokens of a short answer."""
_MANY_LOGPROBS = 10


def samples_of(generation: Generation) -> list[Sample]:
    """A sample for each prompt."""
    sampling = generation.sampling
    short = sampling.max_tokens is not None and sampling.max_tokens <= _SHORT
    logprobs = short and (sampling.logprobs or 0) >= _MANY_LOGPROBS
    samples = []
    for prompt in (generation.prompt, *(prompt for prompt, _ in generation.more)):
        content = _content(prompt)
        hashes = hash(_hashable(content)), hash(_hashable(content[:_BEGINNING]))
        samples.append(Sample(*hashes, generation.choices, sampling.temperature > 0, short, logprobs))
    return samples


def _content(prompt: Prompt) -> str | list[int]:
    if isinstance(prompt, Text):
        return prompt.text
    return prompt.json if isinstance(prompt, Messages) else prompt.ids


def _hashable(content: str | list[int]) -> Hashable:
    return content if isinstance(content, str) else tuple(content)
