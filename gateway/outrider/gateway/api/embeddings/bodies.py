"""The bodies of embeddings, ranks and scores, and their answers."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType
from outrider.gateway.api.schema.generation import Milliseconds
from outrider.gateway.api.schema.prompts import PROMPTS, prompts
from outrider.gateway.request.generation import Prompt, Text
from outrider.mesh.errors import InvalidRequest
from outrider.wire.bounds import MOST_PRIORITY, Count, Flag, integers

MOST_TEXTS = 2048
"""Most texts of one request, as OpenAI has it."""
_TEXTS = f"a string or an array of up to {MOST_TEXTS} strings"

NamedPrompt = tuple[str, Prompt]
"""A prompt, and what errors call it."""


class TextsBody(msgspec.Struct, frozen=True, kw_only=True):
    """The parameters that all of these requests share."""

    model: Annotated[str, Meta(min_length=1, description="the name of a model")] | None = None
    priority: Annotated[int, integers(-MOST_PRIORITY, MOST_PRIORITY, ", lower ones first")] = 0
    timeout_ms: Milliseconds | None = None
    user: Annotated[str, Meta(max_length=1024, description="a string of up to 1024 characters")] | None = None

    def prompts(self) -> list[NamedPrompt]:
        """The texts to embed; raises `InvalidRequest`."""
        raise NotImplementedError


class EmbeddingBody(TextsBody, frozen=True, kw_only=True):
    """Body of ``POST /v1/embeddings``. Of each embedding, the first ``dimensions`` are told, of length 1 again."""

    input: Annotated[str | list[Any], Meta(description=PROMPTS)]
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: Count | None = None
    add_special_tokens: Flag = True

    def prompts(self) -> list[NamedPrompt]:
        """The texts of ``input``."""
        made = prompts(self.input, self.add_special_tokens, param="input", most=MOST_TEXTS)
        whole = isinstance(self.input, str) or not self.input or not isinstance(self.input[0], (str, list))
        return [("input" if whole else f"input[{place}]", prompt) for place, prompt in enumerate(made)]


class Document(msgspec.Struct, frozen=True):
    """A document that is an object with its text."""

    text: str


class RerankBody(TextsBody, frozen=True, kw_only=True):
    """Body of ``POST /v1/rerank``: which of ``documents`` are the nearest to ``query``."""

    query: str
    documents: Annotated[
        list[str | Document],
        Meta(min_length=1, max_length=MOST_TEXTS, description=f"an array of 1 to {MOST_TEXTS} strings"),
    ]
    top_n: Annotated[int, Meta(ge=0, description="an integer of at least 0 (0 tells all)")] = 0
    return_documents: Flag = True

    @property
    def texts(self) -> list[str]:
        """The documents' texts."""
        return [each if isinstance(each, str) else each.text for each in self.documents]

    def prompts(self) -> list[NamedPrompt]:
        """The query, and then the documents."""
        return [*_named(self.query, "query"), *_named(self.texts, "documents")]


class ScoreBody(TextsBody, frozen=True, kw_only=True):
    """Body of ``POST /v1/score``: how near texts are, one to many or pair by pair."""

    text_1: Annotated[str | Annotated[list[str], Meta(min_length=1, max_length=MOST_TEXTS)], Meta(description=_TEXTS)]
    text_2: Annotated[str | Annotated[list[str], Meta(min_length=1, max_length=MOST_TEXTS)], Meta(description=_TEXTS)]

    @property
    def lengths(self) -> tuple[int, int]:
        """Number of texts in both parameters."""
        one, two = ([each] if isinstance(each, str) else each for each in (self.text_1, self.text_2))
        return len(one), len(two)

    def prompts(self) -> list[NamedPrompt]:
        """The texts of both."""
        one, two = self.lengths
        if one not in (1, two):
            why = f"text_1 must be one text, or as many as text_2: there are {one} and {two}"
            raise InvalidRequest(why, param="text_1")
        return [*_named(self.text_1, "text_1"), *_named(self.text_2, "text_2")]


def _named(texts: str | list[str], param: str) -> list[NamedPrompt]:
    if isinstance(texts, str):
        return [(param, Text(texts))]
    return [(f"{param}[{place}]", Text(text)) for place, text in enumerate(texts)]


class TextsUsage(msgspec.Struct):
    """``usage``, in tokens of all texts."""

    prompt_tokens: int
    total_tokens: int
    completion_tokens: int = 0


class Embedding(msgspec.Struct):
    """The embedding of one text, or the base64 of its little-endian float32."""

    index: int
    embedding: list[float] | str
    object: Literal["embedding"] = "embedding"


class Embeddings(msgspec.Struct):
    """Answer of ``POST /v1/embeddings``."""

    data: list[Embedding]
    model: str
    usage: TextsUsage
    object: Literal["list"] = "list"


class RankedDocument(msgspec.Struct):
    """A document, by its place in the request; the cosine of its embedding's angle to the query's."""

    index: int
    relevance_score: float
    document: Document | UnsetType = UNSET


class Ranks(msgspec.Struct):
    """Answer of ``POST /v1/rerank``, the nearest document first."""

    id: str
    model: str
    results: list[RankedDocument]
    usage: TextsUsage


class Score(msgspec.Struct):
    """The cosine of the angle between two embeddings."""

    index: int
    score: float
    object: Literal["score"] = "score"


class Scores(msgspec.Struct):
    """Answer of ``POST /v1/score``."""

    id: str
    created: int
    model: str
    data: list[Score]
    usage: TextsUsage
    object: Literal["list"] = "list"
