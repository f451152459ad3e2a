"""The number of threads that run a model's steps; it may change between steps."""

from __future__ import annotations

import torch
from outrider.engine.models.llama import LlamaModel


class StepThreads:
    """The threads of one model's steps.

    A step of the compiled decoder has the same bits on any number of threads. Other steps may not, so their number of
    threads stays as at load.

    Attributes:
        threads: threads of the next step.
    """

    def __init__(self, model: LlamaModel) -> None:
        self._decoder = model.compiled
        self.threads = torch.get_num_threads() if self._decoder is None else self._decoder.threads

    def set(self, threads: int) -> None:
        """Sets the threads of the next steps. The thread that runs steps calls this between steps."""
        if self._decoder is not None:
            self._decoder.use(threads)
            self.threads = threads
