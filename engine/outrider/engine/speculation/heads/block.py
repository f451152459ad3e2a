"""DFlash and DSpark: a block of guesses in one pass of a few layers, over keys and values of the target's states.

DFlash: Chen et al. 2026 (arXiv 2602.06036), z-lab/dflash (dflash/model.py). DSpark (arXiv 2607.05147) adds a
correction by the token before each guess, and a head for confidence: deepseek-ai/DeepSpec (modeling/dspark). Also vLLM
(qwen3_dflash.py) and the library speculators (models/dflash, models/dspark), which has a smaller draft vocabulary.
"""

from __future__ import annotations

import torch
from outrider.engine.speculation.heads.decoder import Attend, Head
from outrider.engine.speculation.heads.shape import BlockShape
from torch import Tensor
from torch.nn import functional


class BlockHead(Head[BlockShape]):
    """Guesses the tokens behind the newest one, the anchor, from the target's states of all tokens before it."""

    def context(self, states: Tensor) -> Tensor:
        """[..., hidden_size] of the target's states [..., layers, target_hidden_size]."""
        return self.norm("hidden_norm", self.linear("fc", states.flatten(-2)))

    def context_keys(self, context: Tensor, positions: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Rotated keys, and values, of each layer, [..., rows, kv_heads, head_dim], of rows from `context`."""
        rotation = self.rotation(positions)
        return [self.keys(index, context, rotation) for index in range(self.shape.layers)]

    def block(self, anchors: Tensor) -> Tensor:
        """Ids of blocks, int64 [..., block_size], behind the newest tokens [...]."""
        masks = anchors.new_full((*anchors.shape, self.shape.block_size - 1), self.shape.mask_token)
        return torch.cat([anchors[..., None], masks], dim=-1)

    def run(self, ids: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        """States [..., rows, hidden_size] after the last norm, of blocks' ids [..., rows].

        Args:
            ids: from `block`.
            positions: int64 [..., rows]; the anchor's is its place in the sequence, then on by 1.
            attend: attention; a row sees its whole block, and the keys of the states before the anchor.
        """
        rotation, stream = self.rotation(positions), self.embed(ids)
        for index in range(self.shape.layers):
            stream = self.layer(index, self.norm(f"layers.{index}.input_layernorm", stream), stream, rotation, attend)
        return self.norm("norm", stream)

    def guessing(self, states: Tensor) -> Tensor:
        """The rows that guess, [..., guesses, hidden_size], of states [..., block_size, hidden_size]."""
        return states if self.shape.from_anchor else states[..., 1:, :]

    def first_memory(self, states: Tensor) -> Tensor:
        """What `correct` takes at the first guess of blocks; states are [..., hidden_size]."""
        return states.new_zeros(*states.shape[:-1], self.shape.markov_rank)

    def correct(self, previous: Tensor, states: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
        """What the token before a guess adds to its scores (DSpark's Markov head).

        Args:
            previous: int64 [...], the target's id of the token before.
            states: [..., hidden_size] from `guessing`.
            memory: [..., markov_rank], what the guess before returned; only ``rnn`` has any.

        Returns:
            Float32 [..., draft_vocabulary], to be added to `output` of the states, and the next memory.
        """
        shape, before = self.shape, self._before(previous)
        if shape.markov_kind == "gated":
            before = before * self.linear("markov_head.gate_proj", torch.cat([states, before], dim=-1)).sigmoid()
        elif shape.markov_kind == "rnn":
            joint = self.linear("markov_head.joint_proj", torch.cat([memory, before, states], dim=-1))
            gate, candidate, latent = joint.chunk(3, dim=-1)
            gate = gate.sigmoid()
            memory, before = gate * memory + (1 - gate) * candidate.tanh(), latent.tanh()
        return self.linear("markov_head.markov_w2", before), memory

    def correct_block(self, previous: Tensor, states: Tensor) -> Tensor:
        """`correct` for all guesses of blocks whose tokens are known: [..., guesses, draft_vocabulary].

        Args:
            previous: int64 [..., guesses], the token before each guess.
            states: [..., guesses, hidden_size] from `guessing`.
        """
        memory = self.first_memory(states)
        if self.shape.markov_kind != "rnn":
            return self.correct(previous, states, memory)[0]
        added, state = [], memory[..., 0, :]
        for place in range(states.shape[-2]):
            scores, state = self.correct(previous[..., place], states[..., place, :], state)
            added.append(scores)
        return torch.stack(added, dim=-2)

    def confidence(self, previous: Tensor, states: Tensor) -> Tensor:
        """Log-odds [...] that the guesses of states [..., hidden_size] behind ``previous`` [...] are accepted."""
        if self.shape.confidence_with_markov:
            states = torch.cat([states, self._before(previous)], dim=-1)
        return self.linear("confidence_head.proj", states).squeeze(-1)

    def _before(self, previous: Tensor) -> Tensor:
        return functional.embedding(previous, self.tensors["markov_head.markov_w1.weight"]).float()
