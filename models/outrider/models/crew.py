"""How many threads run a model's steps, where that may change between steps."""

from __future__ import annotations

import weakref

import torch
from outrider.kernels.native import NativeDecoder
from outrider.models.llama import LlamaModel


class Crew:
    """The threads of one model's steps.

    On the compiled decoder a step has the same bits on any number of threads. Elsewhere it may not, and the number
    stays what it was at load.

    Attributes:
        threads: of the next step.
    """

    def __init__(self, model: LlamaModel) -> None:
        self._decoder = model.compiled
        self.threads = torch.get_num_threads() if self._decoder is None else int(self._decoder.model.threads)
        self._handles = {} if self._decoder is None else {self.threads: self._decoder.handle}

    def use(self, threads: int) -> None:
        """Has the next steps run on ``threads`` threads. Called between steps, by the thread that runs them."""
        if self._decoder is None:
            return
        if threads not in self._handles:
            self._handles[threads] = _made(self._decoder, threads)
        self._decoder.handle, self.threads = self._handles[threads], threads


def _made(decoder: NativeDecoder, threads: int) -> int:
    """The same weights with threads of their own; freed with ``decoder``."""
    model = type(decoder.model).from_buffer_copy(decoder.model)
    model.threads = threads
    handle: int = decoder.library.outrider_new(model)
    weakref.finalize(decoder, decoder.library.outrider_free, handle)
    return handle
