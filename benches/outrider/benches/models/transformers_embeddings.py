"""Embeddings by plain transformers, as a process that answers lines of JSON.

`python -m outrider.benches.models.transformers_embeddings DIR`: a line of standard input is ``{"dtype", "texts"}``, its
answer ``{"seconds", "tokens", "vectors"}``. As in sentence-transformers, texts are sorted by length and run in padded
batches of 32; the embedding is the last token's state, of length 1. Each dtype has a copy of the model.
"""

from __future__ import annotations

import json
import sys
import time
from functools import cache
from typing import Any

import torch
from outrider.native.share import cores
from transformers import AutoModel, AutoTokenizer

_BATCH = 32


@cache
def _model(directory: str, dtype: str) -> Any:
    return AutoModel.from_pretrained(directory, dtype=getattr(torch, dtype)).eval()


@torch.inference_mode()
def embed(directory: str, dtype: str, texts: list[str]) -> dict[str, Any]:
    """The embeddings of ``texts``, and the seconds of tokenizing and computing them."""
    model, tokenizer = _model(directory, dtype), AutoTokenizer.from_pretrained(directory, padding_side="right")
    began, tokens = time.perf_counter(), 0
    vectors: dict[int, list[float]] = {}
    order = sorted(range(len(texts)), key=lambda place: -len(texts[place]))
    for first in range(0, len(order), _BATCH):
        places = order[first : first + _BATCH]
        batch = tokenizer([texts[place] for place in places], padding=True, return_tensors="pt")
        lengths = batch["attention_mask"].sum(1)
        states = model(**batch).last_hidden_state[torch.arange(len(places)), lengths - 1]
        vectors |= zip(places, torch.nn.functional.normalize(states.float()).tolist(), strict=True)
        tokens += int(lengths.sum())
    seconds = time.perf_counter() - began
    return {"seconds": seconds, "tokens": tokens, "vectors": [vectors[place] for place in range(len(texts))]}


def main() -> None:
    """Answers requests until standard input ends."""
    torch.set_num_threads(cores())
    for line in sys.stdin:
        print(json.dumps(embed(sys.argv[1], **json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
