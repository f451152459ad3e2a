"""EAGLE-3: one layer over the next token's embedding and three of the target's states, token after token.

Li et al. 2025 (arXiv 2503.01840). Layouts: SafeAILab/EAGLE (eagle/model/cnets.py), vLLM (llama_eagle3.py), SGLang
(llama_eagle3.py), SpecForge (modeling/draft/llama3_eagle.py, also 3.1's fc_norm) and speculators (models/eagle3).
"""

from __future__ import annotations

import torch
from outrider.engine.speculation.heads.decoder import Attend, Head
from outrider.engine.speculation.heads.shape import EagleShape
from torch import Tensor


class EagleHead(Head[EagleShape]):
    """The state of token i, with the embedding of token i + 1 at position i, gives scores of token i + 2.

    The first states are the target's (`features`); where the target has not been, a step takes what `run` returned.
    """

    def features(self, states: Tensor) -> Tensor:
        """[..., hidden_size] of the target's states [..., layers, target_hidden_size]."""
        if self.shape.feature_norm == "each":
            parts = [self.norm(f"fc_norm.{place}", states[..., place, :]) for place in range(states.shape[-2])]
            states = torch.stack(parts, dim=-2)
        joined = states.flatten(-2)
        return self.linear("fc", self.norm("input_norm", joined) if self.shape.feature_norm == "all" else joined)

    def run(self, ids: Tensor, features: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        """States [..., rows, hidden_size], for `scores` and as features of the rows behind.

        Args:
            ids: int64 [..., rows], the token behind each state.
            features: [..., rows, hidden_size], from `features` or an earlier run.
            positions: int64 [..., rows], positions of the states.
            attend: attention; a row sees itself and the states before it.
        """
        rotation = self.rotation(positions)
        normed = self.norm("layers.0.hidden_norm", features)
        rows = torch.cat([self.norm("layers.0.input_layernorm", self.embed(ids)), normed], dim=-1)
        stream = self.layer(0, rows, normed if self.shape.norm_before_residual else features, rotation, attend)
        for index in range(1, self.shape.layers):
            stream = self.layer(index, self.norm(f"layers.{index}.input_layernorm", stream), stream, rotation, attend)
        return self.norm("norm", stream) if self.shape.norm_output else stream

    def scores(self, states: Tensor) -> Tensor:
        """Float32 [..., draft_vocabulary] of states from `run`."""
        return self.output(states if self.shape.norm_output else self.norm("norm", states))
