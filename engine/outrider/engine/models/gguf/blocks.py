"""Decodes blocks of quantized tensors to quants.

The layouts are those of ggml's ggml-common.h and ggml-quants.c. Every function takes the blocks of some rows, uint8
[rows, blocks, bytes of a block], and gives their `Quants`. Eight bytes are decoded at a time, as a word.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from outrider.native.quantized import QuantFormat, Quants
from torch import Tensor

_BIT = 0x0101_0101_0101_0101
_LOW = 15 * _BIT
_SIGNS = 128 * _BIT - (1 << 64)
_FIFTH = (torch.arange(256).unsqueeze(1) >> torch.arange(8) & 1).to(torch.uint8).mul_(16).view(torch.int64).squeeze(1)
"""For each byte, its bits as the fifth bits of eight bytes."""


class BlockFormat(NamedTuple):
    """A quantized type: what its quants stand for, and how blocks are decoded to them."""

    format: QuantFormat
    decode: Callable[[Tensor], Quants]


def _halves(blocks: Tensor, first: int) -> Tensor:
    """The float16 number at byte ``first`` of each block: float32 [rows, blocks]."""
    return blocks[:, :, first : first + 2].contiguous().view(torch.float16).squeeze(2).float()


def _words(blocks: Tensor, first: int, last: int) -> Tensor:
    """Bytes ``first`` to ``last`` of each block, eight at a time: int64 [rows, blocks, words]."""
    return blocks[:, :, first:last].clone(memory_format=torch.contiguous_format).view(torch.int64)


def _bytes(words: Tensor) -> Tensor:
    """Words as quants, uint8 [rows, elements]."""
    return words.flatten(1).view(torch.uint8)


def _nibbles(words: Tensor, dim: int) -> Tensor:
    """The lower four bits of each byte, and behind them in dimension ``dim`` the upper four."""
    return torch.stack([words & _LOW, (words >> 4) & _LOW], dim)


def _fifth_bits(blocks: Tensor, first: int) -> Tensor:
    """The fifth bits of blocks of 32: element i has bit i of the four bytes from ``first``."""
    packed = blocks[:, :, first : first + 4].int()
    return _FIFTH.index_select(0, packed.flatten()).view(*packed.shape[:2], 2, 2)


def _q8_0(blocks: Tensor) -> Quants:
    return Quants(_bytes(_words(blocks, 2, 34) ^ _SIGNS), _halves(blocks, 0))


def _q4_0(blocks: Tensor) -> Quants:
    return Quants(_bytes(_nibbles(_words(blocks, 2, 18), 2)), _halves(blocks, 0))


def _q4_1(blocks: Tensor) -> Quants:
    return Quants(_bytes(_nibbles(_words(blocks, 4, 20), 2)), _halves(blocks, 0), -_halves(blocks, 2))


def _q5_0(blocks: Tensor) -> Quants:
    words = _nibbles(_words(blocks, 6, 22), 2).bitwise_or_(_fifth_bits(blocks, 2))
    return Quants(_bytes(words), _halves(blocks, 0))


def _q5_1(blocks: Tensor) -> Quants:
    words = _nibbles(_words(blocks, 8, 24), 2).bitwise_or_(_fifth_bits(blocks, 4))
    return Quants(_bytes(words), _halves(blocks, 0), -_halves(blocks, 2))


def _q4_k(blocks: Tensor) -> Quants:
    return _with_minima(blocks, _k_nibbles(_words(blocks, 16, 144)))


def _q5_k(blocks: Tensor) -> Quants:
    words = _k_nibbles(_words(blocks, 48, 176))
    upper = _words(blocks, 16, 48).view(*blocks.shape[:2], 1, 1, 4) >> torch.arange(8).view(4, 2, 1)
    words |= upper.bitwise_and_(_BIT).bitwise_left_shift_(4)
    return _with_minima(blocks, words)


def _k_nibbles(words: Tensor) -> Tensor:
    """Of each 64 elements, 32 bytes hold the first half below and the second above: [rows, blocks, 4, 2, words]."""
    return _nibbles(words.view(*words.shape[:2], 4, 4), 3)


def _with_minima(blocks: Tensor, words: Tensor) -> Quants:
    """Quants with eight scales and minima of six bits a block, and their units."""
    scales, minima = _six_bits(blocks[:, :, 4:16])
    scale_units, minimum_units = _halves(blocks, 0), _halves(blocks, 2)
    return Quants(
        _bytes(words),
        (scales.float() * scale_units.unsqueeze(2)).flatten(1),
        (minima.float() * minimum_units.unsqueeze(2)).flatten(1),
        scale_units,
        minimum_units,
    )


def _six_bits(packed: Tensor) -> tuple[Tensor, Tensor]:
    """Scales and minima [rows, blocks, 8] from 12 bytes.

    The first four of each are the lower six bits of bytes 0 to 3 and 4 to 7. The last four of scales are the lower
    halves of bytes 8 to 11 below the upper two bits of bytes 0 to 3; of minima, the upper halves and bytes 4 to 7.
    """
    first, second, third = packed[:, :, :4], packed[:, :, 4:8], packed[:, :, 8:]
    scales = torch.cat([first & 63, third & 15 | first >> 6 << 4], 2)
    minima = torch.cat([second & 63, third >> 4 | second >> 6 << 4], 2)
    return scales, minima


def _q6_k(blocks: Tensor) -> Quants:
    """Of each 128 elements, 64 bytes hold the lower bits, the first half below; 32 bytes hold the upper bits."""
    words = _nibbles(_words(blocks, 0, 128).view(*blocks.shape[:2], 2, 2, 4), 3)
    upper = _words(blocks, 128, 192).view(*blocks.shape[:2], 2, 1, 1, 4) >> torch.arange(0, 8, 2).view(2, 2, 1)
    words |= upper.bitwise_and_(3 * _BIT).bitwise_left_shift_(4)
    units, scales = _halves(blocks, 208), blocks[:, :, 192:208].view(torch.int8)
    return Quants(_bytes(words), (scales.float() * units.unsqueeze(2)).flatten(1), scale_units=units)


BLOCK_FORMATS = {
    "Q4_0": BlockFormat(QuantFormat(4, 32, zero=8), _q4_0),
    "Q4_1": BlockFormat(QuantFormat(4, 32, has_minima=True), _q4_1),
    "Q5_0": BlockFormat(QuantFormat(5, 32, zero=16), _q5_0),
    "Q5_1": BlockFormat(QuantFormat(5, 32, has_minima=True), _q5_1),
    "Q8_0": BlockFormat(QuantFormat(8, 32, zero=128), _q8_0),
    "Q4_K": BlockFormat(QuantFormat(4, 32, has_minima=True, has_units=True), _q4_k),
    "Q5_K": BlockFormat(QuantFormat(5, 32, has_minima=True, has_units=True), _q5_k),
    "Q6_K": BlockFormat(QuantFormat(6, 16, zero=32, has_units=True), _q6_k),
}
"""By the name of the type."""
