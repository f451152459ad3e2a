"""The decoder layers that heads share: plain functions of tensors, through which gradients flow."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

import torch
from outrider.engine.models.rotary import frequencies
from outrider.engine.speculation.heads.shape import HeadShape
from outrider.kernels.linear import Linear
from torch import Tensor
from torch.nn import functional

Attend = Callable[[int, Tensor, Tensor, Tensor], Tensor]
"""Attention of a layer: takes its number, and of its rows the rotated queries [..., rows, heads, head_dim], the rotated
keys, and the values [..., rows, kv_heads, head_dim]; returns [..., rows, heads, head_dim]. It decides what rows see."""
Rows = Callable[[Tensor], Tensor]
ShapeT = TypeVar("ShapeT", bound=HeadShape)
_TABLES = ("embed_tokens.weight", "markov_head.markov_w1.weight")


class Head(Generic[ShapeT]):
    """The tensors of a head and what all heads do with them. Matmuls run in the weights' dtype, all else in float32.

    Args:
        shape: sizes of the head.
        tensors: as `HeadShape.sizes` names them.
        embed: the target's embedding, [...] ids to [..., hidden_size]; for a head without its own.
        output: the target's output layer, [..., hidden_size] to [..., vocabulary]; for a head without its own.
        targets: int64 [draft_vocabulary], the target's id of each id of the head, ascending; None for equal ids.

    Attributes:
        shape: sizes of the head.
        tensors: as given; training replaces or changes them.
        targets: as given.
    """

    def __init__(
        self,
        shape: ShapeT,
        tensors: Mapping[str, Tensor],
        embed: Rows | None = None,
        output: Rows | None = None,
        targets: Tensor | None = None,
    ) -> None:
        self.shape, self.tensors, self.targets = shape, dict(tensors), targets
        self._embed, self._output = embed, output
        self._packed: dict[str, Linear] = {}
        self._frequencies = frequencies(shape.rope, shape.head_dim).to(self.tensors["norm.weight"].device)

    def embed(self, ids: Tensor) -> Tensor:
        """Float32 [..., hidden_size] of the target's ids [...]."""
        if self.shape.own_embedding:
            return functional.embedding(ids, self.tensors["embed_tokens.weight"]).float()
        assert self._embed is not None
        return self._embed(ids)

    def output(self, rows: Tensor) -> Tensor:
        """Float32 scores [..., draft_vocabulary] of rows [..., hidden_size] after the last norm."""
        if self.shape.own_output:
            return self.linear("lm_head", rows)
        assert self._output is not None
        return self._output(rows)

    def pack(self, make: Callable[[Tensor], Linear]) -> None:
        """Multiplies by what ``make`` makes of the weights, which `tensors` then holds no longer.

        The head then serves; it can neither be trained nor written.
        """
        for name in [name for name, tensor in self.tensors.items() if tensor.ndim == 2 and name not in _TABLES]:
            self._packed[name.removesuffix(".weight")] = make(self.tensors.pop(name))

    def linear(self, name: str, rows: Tensor) -> Tensor:
        """Float32 product of rows and the weight of ``name``, with its bias if there is one."""
        bias = self.tensors.get(f"{name}.bias")
        if (packed := self._packed.get(name)) is not None:
            found = packed(rows.flatten(0, -2).to(packed.dtype)).float().view(*rows.shape[:-1], -1)
            return found if bias is None else found + bias
        weight = self.tensors[f"{name}.weight"]
        return functional.linear(rows.to(weight.dtype), weight, bias).float()

    def norm(self, name: str, rows: Tensor) -> Tensor:
        """Rows over their root mean square, times the weight of ``name`` (Zhang, Sennrich 2019)."""
        weight = self.tensors[f"{name}.weight"].float()
        return functional.rms_norm(rows, weight.shape, weight, self.shape.norm_eps)

    def rotation(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Cosines and sines of positions [...], each [..., 1, pairs]."""
        angles = positions[..., None, None] * self._frequencies
        return angles.cos() * self.shape.rope.attention_factor, angles.sin() * self.shape.rope.attention_factor

    def keys(self, index: int, rows: Tensor, rotation: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """Rotated keys and values of layer ``index``, each [..., rows, kv_heads, head_dim], of its inputs."""
        name = f"layers.{index}.self_attn"
        key = self._head_norm(f"{name}.k_norm", self._heads(f"{name}.k_proj", rows))
        return rotate(key, *rotation), self._heads(f"{name}.v_proj", rows)

    def layer(
        self, index: int, rows: Tensor, residual: Tensor, rotation: tuple[Tensor, Tensor], attend: Attend
    ) -> Tensor:
        """The residual stream behind layer ``index``: attention over its normed inputs ``rows``, then the gated block.

        Args:
            index: number of the layer.
            rows: [..., rows, inputs], what queries, keys and values are made of.
            residual: [..., rows, hidden_size].
            rotation: of the rows' positions.
            attend: attention over the rows and whatever they see besides.
        """
        name = f"layers.{index}"
        query = self._head_norm(f"{name}.self_attn.q_norm", self._heads(f"{name}.self_attn.q_proj", rows))
        query = rotate(query, *rotation)
        attended = attend(index, query, *self.keys(index, rows, rotation))
        stream = residual + self.linear(f"{name}.self_attn.o_proj", attended.flatten(-2))
        normed = self.norm(f"{name}.post_attention_layernorm", stream)
        gate = functional.silu(self.linear(f"{name}.mlp.gate_proj", normed))
        return stream + self.linear(f"{name}.mlp.down_proj", gate * self.linear(f"{name}.mlp.up_proj", normed))

    def _heads(self, name: str, rows: Tensor) -> Tensor:
        return self.linear(name, rows).view(*rows.shape[:-1], -1, self.shape.head_dim)

    def _head_norm(self, name: str, rows: Tensor) -> Tensor:
        return self.norm(name, rows) if self.shape.query_key_norm else rows


def rotate(heads: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    """Rotates pairs (i, i + pairs) of [..., heads, head_dim]; elements behind the pairs stay (Su et al. 2021)."""
    pairs = cosines.shape[-1]
    first, second, rest = heads[..., :pairs], heads[..., pairs : 2 * pairs], heads[..., 2 * pairs :]
    return torch.cat([first * cosines - second * sines, second * cosines + first * sines, rest], dim=-1)


def attend_masked(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
    """Attention of queries [..., rows, heads, head_dim] over keys and values [..., seen, kv_heads, head_dim].

    Args:
        query: rotated.
        key: rotated.
        value: of the keys.
        mask: bool [..., rows, seen], what each row sees; None for everything.
    """
    if query.ndim == 3:  # torch's quick kernels need a batch
        return attend_masked(query[None], key[None], value[None], None if mask is None else mask[None])[0]
    query, key, value = (part.transpose(-3, -2) for part in (query, key, value))
    mask = None if mask is None else mask.unsqueeze(-3)
    attended = functional.scaled_dot_product_attention(query, key, value, attn_mask=mask, enable_gqa=True)
    return attended.transpose(-3, -2)
