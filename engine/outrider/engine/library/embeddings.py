"""Embeddings of texts, which are computed together."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray
from outrider.engine.errors import RequestError
from outrider.engine.library.prompts import Prompt
from outrider.engine.library.streams import Asked, Stream


def embeddings(ask: Callable[[Prompt], Asked], texts: Sequence[Prompt], size: int) -> NDArray[np.float32]:
    """The embeddings of ``texts``, float32 [texts, size]; they end together if one fails or the caller is interrupted.

    Raises as ``ask`` and `Stream` do, and `RequestError` for a text that the engine failed.
    """
    asked = [ask(text) for text in texts]
    streams: list[Stream] = []
    try:
        streams += map(Stream, asked)
        return np.concatenate([np.empty(0, np.float32), *map(_embedding, streams)]).reshape(-1, size)
    finally:
        for stream in streams:
            stream.close()


def _embedding(stream: Stream) -> NDArray[np.float32]:
    output = stream.last()
    if output.embedding is None:
        raise RequestError(f"texts have no embedding: {output.error}", param="texts")
    return np.frombuffer(output.embedding, "<f4")
