"""Questions about long contexts; answers quote the context."""

from __future__ import annotations

import random
from collections.abc import Iterator

from outrider.measure.chats.chat_request import ChatRequest
from outrider.measure.chats.library import Passage, passages

CHARACTERS_A_TOKEN = 4
"""Average of English text."""
_TOKENS = 192
_QUESTIONS = (
    "What do the passages say about {subject}? Answer in two or three sentences, and quote the words you rely on.",
    "Explain {subject} by the passages above. Support every statement with a literal quote and its passage's number.",
    "Which passage is about {subject}? Name its number, and quote its two most important sentences word for word.",
    "Someone asks what they have to know about {subject}. Answer from the passages, with direct quotes.",
    "Summarise what is said of {subject}, and then quote the sentence that matters most.",
)


def questions(draw: random.Random, tokens: tuple[int, int]) -> Iterator[ChatRequest]:
    """Questions, each about a different passage at a random place among others.

    Args:
        draw: source of all random choices.
        tokens: approximate fewest and most tokens of a context.
    """
    texts = list(passages(draw))
    for passage in texts:
        least_characters, context = CHARACTERS_A_TOKEN * draw.randint(*tokens), [passage]
        while sum(len(part.text) for part in context) < least_characters:
            other = draw.choice(texts)
            context += [other] if other not in context else []
        draw.shuffle(context)
        question = draw.choice(_QUESTIONS).format(subject=passage.subject)
        yield ChatRequest("rag", f"{_numbered(context)}\n\n{question}", _TOKENS)


def _numbered(context: list[Passage]) -> str:
    return "\n\n".join(f"[{number}] {part.subject}\n{part.text}" for number, part in enumerate(context, 1))
