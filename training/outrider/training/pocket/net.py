"""A Llama-family decoder written for training, with Hugging Face's parameter names.

`LlamaForCausalLM` loads the state dict unchanged. The decoder has no KV cache: serving has its own model.
Touvron et al., LLaMA (arXiv:2302.13971); grouped queries, Ainslie et al. (arXiv:2305.13245);
rotary positions, Su et al. (arXiv:2104.09864).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True)
class Shape:
    """The sizes of a decoder, in the words of Hugging Face's `LlamaConfig`."""

    vocab: int = 4096
    width: int = 256
    layers: int = 8
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 64
    inner: int = 704
    context: int = 2048
    theta: float = 10000.0
    eps: float = 1e-5


TARGET = Shape()


class RMSNorm(nn.Module):
    """Root-mean-square normalisation over the last dimension."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """Normalises `x` [..., width]."""
        return F.rms_norm(x, self.weight.shape, self.weight, self.eps)


def rotary_tables(shape: Shape, length: int, device: torch.device, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Cosines and sines [length, head_dim] in Hugging Face's half-split order; the first half of sines is negated."""
    inverse = shape.theta ** -(torch.arange(0, shape.head_dim, 2, device=device).float() / shape.head_dim)
    angle = torch.arange(length, device=device).float()[:, None] * inverse
    cos, sin = angle.cos(), angle.sin()
    return torch.cat((cos, cos), -1).to(dtype), torch.cat((-sin, sin), -1).to(dtype)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotates `x` [batch, length, heads, head_dim] by the angles of its positions."""
    half = x.shape[-1] // 2
    return x * cos[:, None] + torch.cat((x[..., half:], x[..., :half]), -1) * sin[:, None]


def causal_attention(q: Tensor, k: Tensor, v: Tensor, block: int = 256) -> Tensor:
    """Causal attention by plain products, one block of queries at a time.

    `q`, `k`, `v` are [batch, heads, length, head_dim]. On CPU this is faster than the bfloat16 backward pass of the
    fused kernel; on a GPU the fused kernel runs.
    """
    if q.is_cuda:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)
    length, scale = q.shape[2], q.shape[3] ** -0.5
    q = q * scale
    future = torch.ones(block, block, dtype=torch.bool, device=q.device).triu(1)
    parts = []
    for start in range(0, length, block):
        stop = min(start + block, length)
        scores = q[:, :, start:stop] @ k[:, :, :stop].transpose(-1, -2)
        mask = future[: stop - start, : stop - start]
        scores[..., start:stop].masked_fill_(mask, float("-inf"))
        parts.append(scores.softmax(-1) @ v[:, :, :stop])
    return torch.cat(parts, 2) if len(parts) > 1 else parts[0]


class Attention(nn.Module):
    """Grouped-query self-attention with rotary positions."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.q_proj = nn.Linear(shape.width, shape.heads * shape.head_dim, bias=False)
        self.k_proj = nn.Linear(shape.width, shape.kv_heads * shape.head_dim, bias=False)
        self.v_proj = nn.Linear(shape.width, shape.kv_heads * shape.head_dim, bias=False)
        self.o_proj = nn.Linear(shape.heads * shape.head_dim, shape.width, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Attends within `x` [batch, length, width]."""
        s, (batch, length, _) = self.shape, x.shape
        q = rotate(self.q_proj(x).view(batch, length, s.heads, s.head_dim), cos, sin)
        k = rotate(self.k_proj(x).view(batch, length, s.kv_heads, s.head_dim), cos, sin)
        v = self.v_proj(x).view(batch, length, s.kv_heads, s.head_dim)
        group = s.heads // s.kv_heads
        k, v = (t.repeat_interleave(group, 2).transpose(1, 2) for t in (k, v))
        mixed = causal_attention(q.transpose(1, 2), k, v)
        out: Tensor = self.o_proj(mixed.transpose(1, 2).reshape(batch, length, -1))
        return out


class MLP(nn.Module):
    """The gated feed-forward layer, SwiGLU (Shazeer, arXiv:2002.05202)."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(shape.width, shape.inner, bias=False)
        self.up_proj = nn.Linear(shape.width, shape.inner, bias=False)
        self.down_proj = nn.Linear(shape.inner, shape.width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Maps `x` [..., width] to the same shape."""
        out: Tensor = self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))
        return out


class Layer(nn.Module):
    """One pre-normalised decoder layer."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(shape.width, shape.eps)
        self.self_attn = Attention(shape)
        self.post_attention_layernorm = RMSNorm(shape.width, shape.eps)
        self.mlp = MLP(shape)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Adds attention, then the feed-forward layer, to `x` [batch, length, width]."""
        x = x + self.self_attn(self.input_layernorm(x), cos, sin)
        out: Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return out


class Body(nn.Module):
    """Embedding, layers and the last normalisation (`model.` in the state dict)."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(shape.vocab, shape.width)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.layers))
        self.norm = RMSNorm(shape.width, shape.eps)


class Llama(nn.Module):
    """The decoder; the output layer is tied to the embedding."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.model = Body(shape)
        self._tables: dict[int, tuple[Tensor, Tensor]] = {}

    def reset(self, seed: int) -> None:
        """Draws new weights; projections into the residual stream start at zero."""
        generator = torch.Generator().manual_seed(seed)
        for name, p in self.named_parameters():
            if p.dim() == 1:
                nn.init.ones_(p)
            elif name.endswith(("o_proj.weight", "down_proj.weight")):
                nn.init.zeros_(p)
            else:
                std = 0.02 if "embed" in name else p.shape[1] ** -0.5
                nn.init.normal_(p, 0.0, std, generator=generator)

    def hidden(self, tokens: Tensor) -> Tensor:
        """Last normalised hidden states [batch, length, width] of `tokens` [batch, length]."""
        x = self.model.embed_tokens(tokens)
        length = tokens.shape[1]
        if length not in self._tables:
            self._tables[length] = rotary_tables(self.shape, length, x.device, x.dtype)
        for layer in self.model.layers:
            x = layer(x, *self._tables[length])
        out: Tensor = self.model.norm(x)
        return out

    def logits(self, hidden: Tensor) -> Tensor:
        """Scores [..., vocab] of the next token from `hidden` [..., width]."""
        return F.linear(hidden, self.model.embed_tokens.weight)

    def forward(self, tokens: Tensor) -> Tensor:
        """Scores [batch, length, vocab] of each next token."""
        return self.logits(self.hidden(tokens))
