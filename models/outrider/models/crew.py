"""How many threads run a model's steps, where that may change between steps."""

from __future__ import annotations

import torch
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
        self.threads = torch.get_num_threads() if self._decoder is None else self._decoder.threads

    def use(self, threads: int) -> None:
        """Has the next steps run on ``threads`` threads. Called between steps, by the thread that runs them."""
        if self._decoder is not None:
            self._decoder.use(threads)
            self.threads = threads
