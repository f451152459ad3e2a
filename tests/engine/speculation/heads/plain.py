"""Plain readings of heads from the papers' equations: one row at a time, without caches, straight from the tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from tests.engine.speculation.heads.published import EPS, HEADS, KV_HEADS, MASK, RANK, SIZE, THETA, Published

Rows = Callable[[Tensor], Tensor]


class Plain:
    """Tensors under one name each, and a decoder layer.

    Args:
        published: the checkpoint.
        embed: the target's embedding.
        output: the target's output layer.
    """

    def __init__(self, published: Published, embed: Rows, output: Rows) -> None:
        self.facts, self.tensors = published.facts, published.tensors
        table, head = self.tensors.get("embed_tokens.weight"), self.tensors.get("lm_head.weight")
        self.embed = embed if table is None else lambda ids: table[ids]
        self.output = output if head is None else lambda rows: rows @ head.T
        ids = self.tensors.get("d2t")
        self.ids = None if ids is None else [place + int(far) for place, far in enumerate(ids)]

    def token(self, scores: Tensor) -> int:
        """The target's id of the best score."""
        best = int(scores.argmax())
        return best if self.ids is None else self.ids[best]

    def norm(self, name: str, row: Tensor) -> Tensor:
        return row / (row.pow(2).mean() + EPS).sqrt() * self.tensors[f"{name}.weight"]

    def heads(self, name: str, row: Tensor, position: int, norm: str | None) -> Tensor:
        """[heads, SIZE], normed and rotated where ``norm`` says so."""
        split = (self.tensors[f"{name}.weight"] @ row).reshape(-1, SIZE)
        if norm is None:
            return split
        if f"{norm}.weight" in self.tensors:
            split = torch.stack([self.norm(norm, head) for head in split])
        turned, half = split.clone(), SIZE // 2
        for pair in range(half):
            angle = torch.tensor(position * THETA ** (-2 * pair / SIZE))
            a, b = split[:, pair], split[:, pair + half]
            turned[:, pair] = a * angle.cos() - b * angle.sin()
            turned[:, pair + half] = b * angle.cos() + a * angle.sin()
        return turned

    def key_value(self, layer: str, row: Tensor, position: int) -> tuple[Tensor, Tensor]:
        name = f"{layer}.self_attn"
        key = self.heads(f"{name}.k_proj", row, position, f"{name}.k_norm")
        return key, self.heads(f"{name}.v_proj", row, position, None)

    def attend(self, layer: str, row: Tensor, position: int, seen: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
        """The attention's output for a row over the keys and values that it sees."""
        name, outs = f"{layer}.self_attn", []
        for head, query in enumerate(self.heads(f"{name}.q_proj", row, position, f"{name}.q_norm")):
            group = head // (HEADS // KV_HEADS)
            shares = torch.stack([query @ key[group] for key, _ in seen]).div(SIZE**0.5).softmax(0)
            outs.append(sum(share * value[group] for share, (_, value) in zip(shares, seen, strict=True)))
        return self.tensors[f"{name}.o_proj.weight"] @ torch.cat(outs)

    def block(self, layer: str, stream: Tensor) -> Tensor:
        """The stream behind the gated block."""
        row = self.norm(f"{layer}.post_attention_layernorm", stream)
        gate, up = (self.tensors[f"{layer}.mlp.{name}_proj.weight"] @ row for name in ("gate", "up"))
        return stream + self.tensors[f"{layer}.mlp.down_proj.weight"] @ (gate * gate.sigmoid() * up)


class PlainEagle(Plain):
    """EAGLE-3: Li et al. 2025, section 3."""

    def features(self, states: Tensor) -> Tensor:
        """[HIDDEN] of a token's states [3, TARGET]."""
        kind = self.facts.get("feature_norm")
        if kind == "each":
            states = torch.stack([self.norm(f"fc_norm.{place}", row) for place, row in enumerate(states)])
        joined = states.flatten()
        return self.tensors["fc.weight"] @ (self.norm("input_norm", joined) if kind == "all" else joined)

    def states(self, ids: Sequence[int], features: Sequence[Tensor], first: int = 0) -> list[Tensor]:
        """The head's state at each place from ``first`` on, of the features there and the tokens behind them."""
        layer = "midlayer" if "midlayer.hidden_norm.weight" in self.tensors else "layers.0"
        rows, streams = [], []
        for token, feature in zip(ids, features, strict=True):
            normed = self.norm(f"{layer}.hidden_norm", feature)
            embedded = self.norm(f"{layer}.input_layernorm", self.embed(torch.tensor([token]))[0])
            rows.append(torch.cat([embedded, normed]))
            streams.append(normed if self.facts.get("norm_before_residual") else feature)
        index = 0
        while f"{layer}.mlp.up_proj.weight" in self.tensors:
            seen = [self.key_value(layer, row, first + place) for place, row in enumerate(rows)]
            streams = [
                self.block(layer, stream + self.attend(layer, row, first + place, seen[: place + 1]))
                for place, (row, stream) in enumerate(zip(rows, streams, strict=True))
            ]
            index += 1
            layer = f"layers.{index}"
            if f"{layer}.input_layernorm.weight" in self.tensors:
                rows = [self.norm(f"{layer}.input_layernorm", stream) for stream in streams]
        return [self.norm("norm", stream) for stream in streams] if self.facts.get("norm_output") else streams

    def scores(self, state: Tensor) -> Tensor:
        return self.output((state if self.facts.get("norm_output") else self.norm("norm", state))[None])[0]

    def after(self, tokens: Sequence[int], states: Tensor, guesses: Sequence[int], first: int = 0) -> Tensor:
        """Scores of the token behind ``guesses``, which follow ``tokens``.

        ``states`` [len(tokens) - 1 - first, 3, TARGET] are of all tokens from ``first`` on but the newest.
        """
        features = [self.features(row) for row in states]
        ids = list(tokens[first + 1 :])
        for guess in guesses:
            features.append(self.states(ids, features, first)[-1])
            ids.append(guess)
        return self.scores(self.states(ids, features, first)[-1])

    def chain(self, tokens: Sequence[int], states: Tensor, length: int, first: int = 0) -> list[int]:
        """The likeliest guesses, one behind the other."""
        guesses: list[int] = []
        for _ in range(length):
            guesses.append(self.token(self.after(tokens, states, guesses, first)))
        return guesses


class PlainBlock(Plain):
    """DFlash, arXiv 2602.06036, section 3; DSpark, arXiv 2607.05147."""

    def states(self, anchor: int, position: int, states: Tensor, first: int = 0) -> list[Tensor]:
        """The block's states that guess, behind ``anchor`` at ``position``; ``states`` are of the tokens before it."""
        context = [self.norm("hidden_norm", self.tensors["fc.weight"] @ row.flatten()) for row in states]
        ids = [anchor] + [MASK] * (self.facts["block"] - 1)
        streams = list(self.embed(torch.tensor(ids)))
        index = 0
        while f"layers.{index}.mlp.up_proj.weight" in self.tensors:
            layer = f"layers.{index}"
            rows = [self.norm(f"{layer}.input_layernorm", stream) for stream in streams]
            seen = [self.key_value(layer, row, first + place) for place, row in enumerate(context)]
            seen += [self.key_value(layer, row, position + place) for place, row in enumerate(rows)]
            streams = [
                self.block(layer, stream + self.attend(layer, row, position + place, seen))
                for place, (row, stream) in enumerate(zip(rows, streams, strict=True))
            ]
            index += 1
        normed = [self.norm("norm", stream) for stream in streams]
        return normed if self.facts.get("anchor") else normed[1:]

    def scores(self, states: Sequence[Tensor], anchor: int, guesses: Sequence[int]) -> Tensor:
        """Scores of the guess behind ``guesses``."""
        base = self.output(states[len(guesses)][None])[0]
        kind, before = self.facts.get("markov"), [anchor, *guesses]
        if kind is None:
            return base
        table, memory = self.tensors["markov_head.markov_w1.weight"], torch.zeros(RANK)
        latent = table[before[-1]]
        if kind == "gated":
            joined = torch.cat([states[len(guesses)], latent])
            weight, bias = (self.tensors[f"markov_head.gate_proj.{name}"] for name in ("weight", "bias"))
            latent = latent * (weight @ joined + bias).sigmoid()
        if kind == "rnn":
            weight, bias = (self.tensors[f"markov_head.joint_proj.{name}"] for name in ("weight", "bias"))
            for token, state in zip(before, states, strict=False):
                gate, candidate, latent = (weight @ torch.cat([memory, table[token], state]) + bias).split(RANK)
                memory = gate.sigmoid() * memory + (1 - gate.sigmoid()) * candidate.tanh()
            latent = latent.tanh()
        return base + self.tensors["markov_head.markov_w2.weight"] @ latent

    def confidence(self, states: Sequence[Tensor], anchor: int, guesses: Sequence[int]) -> float:
        """Probability that the guess behind ``guesses`` is accepted, as the head for that says."""
        row = states[len(guesses)]
        if self.facts["confidence"] == "markov":
            row = torch.cat([row, self.tensors["markov_head.markov_w1.weight"][[anchor, *guesses][-1]]])
        weight, bias = (self.tensors[f"confidence_head.proj.{name}"] for name in ("weight", "bias"))
        return float((weight @ row + bias).sigmoid())

    def chain(self, anchor: int, position: int, states: Tensor, first: int = 0) -> list[int]:
        """The likeliest guesses, one behind the other."""
        rows, guesses = self.states(anchor, position, states, first), []
        for _ in rows:
            guesses.append(self.token(self.scores(rows, anchor, guesses)))
        return guesses
