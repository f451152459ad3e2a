"""The number of threads that run a model's steps; it may change between steps."""

from __future__ import annotations

import weakref

import torch
from outrider.kernels.native import NativeDecoder
from outrider.models.llama import LlamaModel


class Crew:
    """The threads of one model's steps.

    A step of the compiled decoder has the same bits on any number of threads. Other steps may not, so their number of
    threads stays as at load.

    Attributes:
        threads: threads of the next step.
    """

    def __init__(self, model: LlamaModel) -> None:
        self._decoder = model.compiled
        self.threads = torch.get_num_threads() if self._decoder is None else int(self._decoder.model.threads)
        self._handles = {} if self._decoder is None else {self.threads: self._decoder.handle}

    def use(self, threads: int) -> None:
        """Sets the threads of the next steps. The thread that runs steps calls this between steps."""
        if self._decoder is None:
            return
        if threads not in self._handles:
            self._handles[threads] = _with_threads(self._decoder, threads)
        self._decoder.handle, self.threads = self._handles[threads], threads


def _with_threads(decoder: NativeDecoder, threads: int) -> int:
    """A handle of the same weights with other threads; freed with ``decoder``."""
    model = type(decoder.model).from_buffer_copy(decoder.model)
    model.threads = threads
    handle: int = decoder.library.outrider_new(model)
    weakref.finalize(decoder, decoder.library.outrider_free, handle)
    return handle
