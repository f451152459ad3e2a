"""Device functions that read a block of a weight: words, the numbers in them, and what belongs to their groups."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

_INT8_BF16 = """{ .reg .b32 t, u, v; mov.b32 v, 0x3f803f80; shr.u32 t, $1, %d;
lop3.b32 u, t, 0x00800080, 0xc300c300, 0xea; lop3.b32 t, t, 0x007f007f, 0x43004300, 0xea;
fma.rn.bf16x2 $0, t, v, u; }"""
_INT8_FP16 = """{ .reg .b32 t, u; mov.b32 u, 0xe480e480; shr.u32 t, $1, %d; lop3.b32 t, t, 0x00ff00ff, 0x64806480, 0x6a;
add.rn.f16x2 $0, t, u; }"""
_INT4_BF16 = """{ .reg .b32 t, v; mov.b32 v, 0x3f803f80; shr.u32 t, $1, %d; lop3.b32 t, t, 0x000f000f, 0x43004300, 0xea;
fma.rn.bf16x2 $0, t, v, $2; }"""
_INT4_FP16 = """{ .reg .b32 t; shr.u32 t, $1, %d; lop3.b32 t, t, 0x000f000f, 0x64006400, 0xea;
add.rn.f16x2 $0, t, $2; }"""

_FP8_BF16 = """{ .reg .b32 t, u, v, w; mov.b32 v, 0x7b807b80; mov.b32 w, 0x80008000; shr.u32 t, $1, %d;
shl.b32 u, t, 8; shl.b32 t, t, 4; and.b32 t, t, 0x07f007f0; lop3.b32 t, u, 0x80008000, t, 0xea;
fma.rn.bf16x2 $0, t, v, w; }"""
_FP8_FP16 = """{ .reg .b32 t, u, v; mov.b32 v, 0x5c005c00; shr.u32 t, $1, %d;
shl.b32 u, t, 8; shl.b32 t, t, 7; and.b32 t, t, 0x3f803f80; lop3.b32 t, u, 0x80008000, t, 0xea;
mul.rn.f16x2 $0, t, v; }"""


def _shifted(instructions: str, parts: int) -> tuple[str, ...]:
    return tuple(instructions % (part * 16 // parts) for part in range(parts))


UNPACK = {
    (2, torch.bfloat16): _shifted(_INT8_BF16, 2),
    (2, torch.float16): _shifted(_INT8_FP16, 2),
    (4, torch.bfloat16): _shifted(_INT4_BF16, 4),
    (4, torch.float16): _shifted(_INT4_FP16, 4),
}
"""For each place of a word, instructions that make two floats of the quants in two words: bits set below a magic
number, which is subtracted again. An eight-bit quant's sign is a bit of the subtrahend, or is flipped to become an
offset."""

UNPACK_FLOATS = {torch.bfloat16: _shifted(_FP8_BF16, 2), torch.float16: _shifted(_FP8_FP16, 2)}
"""The same for e4m3: its exponent and mantissa become the lowest bits of the wider exponent and the highest of the
wider mantissa. A product with a power of two then sets the exponent right, of subnormal numbers too."""


@triton.jit
def offsets_of(slices, lines, columns, SLICES: tl.constexpr):
    """Sums of offsets: [lines, columns], for each of the slices where there are several."""
    if SLICES == 1:
        sums = lines[:, None] + (slices + columns)[None, :]
    else:
        sums = slices[:, None, None] + lines[None, :, None] + columns[None, None, :]
    return sums


@triton.jit
def per_line(values, slices, lines, used, SLICES: tl.constexpr):
    """The value of each line of a block: [lines, 1], or [slices, lines, 1]."""
    if SLICES == 1:
        values_by_line = tl.load(values + slices + lines)[:, None]
    else:
        values_by_line = tl.load(values + slices[:, None] + lines[None, :], used[:, None], other=0.0)[:, :, None]
    return values_by_line


@triton.jit
def group_index(step, PART: tl.constexpr, WORDS: tl.constexpr, PARTS: tl.constexpr, GROUP: tl.constexpr):
    """The group of the input features at one place of the words of a block."""
    STEP: tl.constexpr = WORDS * PARTS
    if STEP % GROUP == 0:
        # Several groups a block; a part never straddles two, because WORDS divides GROUP.
        group = step * (STEP // GROUP) + PART * WORDS // GROUP
    elif GROUP % STEP == 0:
        # Several blocks a group.
        group = step // (GROUP // STEP)
    else:
        group = (step * STEP + PART * WORDS) // GROUP
    return group


@triton.jit
def of_group(
    values, units, step, outer, line, used, PART: tl.constexpr, WORDS: tl.constexpr, PARTS: tl.constexpr,
    GROUP: tl.constexpr, UNIT: tl.constexpr, SLICES: tl.constexpr,
):  # fmt: skip
    """The scale or the minimum of each line's group, in float32 where it counts units."""
    value = per_line(values, group_index(step, PART, WORDS, PARTS, GROUP) * outer, line, used, SLICES)
    if UNIT > 0:
        unit = per_line(units, group_index(step, PART, WORDS, PARTS, UNIT) * outer, line, used, SLICES)
        value = value.to(tl.float32) * unit
    return value


@triton.jit
def numbers_at(
    words, zeros, inputs, PART: tl.constexpr, PARTS: tl.constexpr, ASM: tl.constexpr, MAGIC: tl.constexpr,
    FLOATS: tl.constexpr,
):  # fmt: skip
    """The numbers at one place of each word, less their zero point."""
    if PARTS == 1:
        quant = words
    # Interpreted, or in float32: plain shifts, with the same numbers as the assembly.
    elif ASM is None:
        quant = (words >> (16 // PARTS * PART)) & (2 ** (16 // PARTS) - 1)
        if FLOATS:
            bits = ((quant & 128) << 8) | ((quant & 127) << 7)
            quant = bits.to(tl.float16, bitcast=True).to(tl.float32) * 256.0
        else:
            quant = (quant ^ 128) - 128 if PARTS == 2 else quant.to(tl.float32) + (zeros.to(tl.float32) + MAGIC)
    # pack=2: the assembly reads two words in one register, and makes two floats at once.
    elif PARTS == 2:
        quant = tl.inline_asm_elementwise(ASM[PART], "=r,r", [words], dtype=inputs.dtype, is_pure=True, pack=2)
    else:
        offsets = tl.broadcast_to(zeros, words.shape)
        quant = tl.inline_asm_elementwise(
            ASM[PART], "=r,r,r", [words, offsets], dtype=inputs.dtype, is_pure=True, pack=2
        )
    return quant.to(inputs.dtype)
