"""Bits per byte of a model on a text: ``python -m outrider.benches.models quality --model DIR --text FILE ...``.

The text is cut into windows of ``--context`` tokens that do not overlap. Each token behind the first of its window is
predicted from those before it; the bits of all predictions are divided by the bytes of the predicted tokens. Two
settings are compared by two runs on the same text.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from pathlib import Path

import torch
from outrider.engine.errors import ModelError
from outrider.engine.models import pocket
from outrider.engine.models.llama import LlamaModel
from outrider.engine.text import TextError, Tokenizer
from outrider.kernels.batch import RaggedBatch, SequenceRows

_PAGE_SIZE = 16
_ROWS = 128
"""Rows whose logits are held at once."""


def main(arguments: Sequence[str]) -> None:
    """Prints the bits per byte of the model on the text, and what was measured."""
    options = _options(arguments)
    torch.set_num_threads(options.threads)
    try:
        tokenizer = Tokenizer.load(options.model)
        model = LlamaModel.load(
            options.model,
            dtype=options.dtype,
            device=options.device,
            quantization=options.quantization,
            kv_dtype=options.kv_dtype,
        )
        ids = tokenizer.encode(options.text.read_text(), add_special=False)[: options.tokens]
        bits = bits_per_byte(model, ids, tokenizer.single_token_bytes, options.context)
    except (ModelError, TextError, OSError) as error:
        raise SystemExit(f"error: {error}") from None
    kinds = f"weights {model.dtype}, quantization {options.quantization or 'none'}, keys and values {model.kv_dtype}"
    print(f"{bits:.5f} bits per byte; {len(ids)} tokens in windows of {options.context}; {kinds}")


def bits_per_byte(model: LlamaModel, ids: Sequence[int], token_bytes: Sequence[bytes], context: int) -> float:
    """Bits per byte of a text.

    Args:
        model: predicts.
        ids: tokens of the text.
        token_bytes: bytes of each token of the vocabulary.
        context: tokens of a window, from 2 to the model's context length.

    Raises:
        ModelError: the context is too long, or there is nothing to predict.
    """
    if not 2 <= context <= model.config.context_length:
        raise ModelError(f"a context of {context} tokens; this model takes 2 to {model.config.context_length}")
    windows = [ids[start : start + context] for start in range(0, len(ids), context)]
    size = sum(len(token_bytes[token]) for window in windows for token in window[1:])
    if not size:
        raise ModelError("the text is too short to be predicted")
    return sum(_bits(model, window) for window in windows) / size


@torch.inference_mode()
def _bits(model: LlamaModel, window: Sequence[int]) -> float:
    """Bits of all tokens of a window but the first."""
    pages = range(-(-len(window) // _PAGE_SIZE))
    batch = RaggedBatch.build([SequenceRows(len(window), 0, pages)], _PAGE_SIZE, model.device)
    tokens = torch.tensor(window, device=model.device)
    hidden, bits = model.forward(tokens, batch, model.new_pool(len(pages), _PAGE_SIZE)), 0.0
    for start in range(0, len(window) - 1, _ROWS):
        behind = tokens[start + 1 : start + 1 + _ROWS]
        likely = model.logits(hidden[start : start + len(behind)]).log_softmax(-1)
        bits -= likely.gather(1, behind[:, None]).double().sum().item() / math.log(2)
    return bits


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m outrider.benches.models quality", description=__doc__)
    parser.add_argument("--model", type=Path, default=pocket.directory("target"), help="directory of the model")
    parser.add_argument("--text", type=Path, required=True, help="file in UTF-8")
    parser.add_argument("--tokens", type=int, help="at most so many tokens of the text")
    parser.add_argument("--context", type=int, default=1024, help="tokens of a window")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--quantization", choices=("int8", "int4", "fp8"))
    parser.add_argument("--kv-dtype", default="auto")
    parser.add_argument("--threads", type=int, default=2)
    return parser.parse_args(arguments)
