"""Tensors of every type against the decoders of the ``gguf`` package."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType, GGUFWriter, quants
from outrider.engine.models.gguf.blocks import BLOCK_FORMATS
from outrider.engine.models.gguf.header import GgufFile
from outrider.engine.models.gguf.layout import TENSOR_TYPES
from outrider.engine.models.gguf.tensors import GgufWeight, release, tensor, weight
from outrider.native.library import library
from outrider.native.packing import Packing
from outrider.native.quantized import UNIT_GROUP, QuantizedWeight, QuantsInMemory, Reordered, dequantized
from outrider.native.weights import Part, Projection

from tests.engine.models.gguf.files import write_file

_ROWS, _COLUMNS = 37, 768
_HALVES = {"Q4_1": (0, 2), "Q5_1": (0, 2), "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,)}
_PLAIN = {"F32": np.float32, "F16": np.float16, "BF16": np.uint16}


def blocks_of(name: str, rows: int = _ROWS) -> np.ndarray:
    """Random blocks, uint8 [rows, bytes of a row], whose units are finite numbers."""
    kind = next(kind for kind in TENSOR_TYPES.values() if kind.name == name)
    random = np.random.default_rng(len(name))
    blocks = random.integers(0, 256, (rows, _COLUMNS // kind.elements, kind.size), dtype=np.uint8)
    for first in _HALVES.get(name, (0,)):
        halves = random.standard_normal(blocks.shape[:2]).astype(np.float16)
        blocks[:, :, first : first + 2] = halves[..., None].view(np.uint8)
    return blocks.reshape(rows, -1)


def written(path: Path, name: str, contents: np.ndarray) -> GgufFile:
    def fill(writer: GGUFWriter) -> None:
        writer.add_tensor("w", contents, raw_dtype=GGMLQuantizationType[name])

    return GgufFile.open(write_file(path / "model.gguf", "llama", fill))


def weight_of(path: Path, name: str) -> GgufWeight:
    file = written(path, name, blocks_of(name))
    return weight(file, file.tensors["w"])


@pytest.mark.parametrize("name", BLOCK_FORMATS)
def test_numbers_of_a_weight_are_those_of_gguf_to_the_bit(name: str, tmp_path: Path) -> None:
    ours = weight_of(tmp_path, name)
    expected = quants.dequantize(blocks_of(name), GGMLQuantizationType[name])
    assert ours.shape == (_ROWS, _COLUMNS)
    assert torch.equal(dequantized(ours, torch.float32), torch.from_numpy(expected))


@pytest.mark.parametrize("name", BLOCK_FORMATS)
def test_quants_of_some_rows_are_those_of_all_rows(name: str, tmp_path: Path) -> None:
    ours = weight_of(tmp_path, name)
    every = ours.quants(torch.arange(_ROWS))
    for rows in (torch.tensor([5]), torch.tensor([30, 2, 2, 11]), torch.arange(9, 21), torch.arange(0)):
        some = ours.quants(rows)
        for field in ("quants", "scales", "minima", "scale_units", "minimum_units"):
            whole, part = getattr(every, field), getattr(some, field)
            assert part is None if whole is None else torch.equal(part, whole[rows])
    with pytest.raises(IndexError):
        ours.quants(torch.tensor([_ROWS]))


@pytest.mark.parametrize("name", BLOCK_FORMATS)
def test_quants_have_the_shapes_and_bounds_of_their_form(name: str, tmp_path: Path) -> None:
    ours = weight_of(tmp_path, name)
    form, quants = ours.format, ours.quants(torch.arange(_ROWS))
    assert int(quants.quants.max()) == (1 << form.bits) - 1
    assert quants.quants.is_contiguous()
    assert quants.scales.shape == (_ROWS, _COLUMNS // form.group)
    assert (quants.minima is not None) == form.has_minima
    assert (quants.scale_units is not None) == form.has_units
    if quants.scale_units is None:
        return
    groups = UNIT_GROUP // form.group
    for numbers, units in ((quants.scales, quants.scale_units), (quants.minima, quants.minimum_units)):
        if numbers is not None and units is not None:
            repeated = units.repeat_interleave(groups, 1)
            multiples = (numbers / repeated).round()
            assert torch.equal(multiples * repeated, numbers)
            low, high = (0, 63) if form.has_minima else (-128, 127)
            assert (int(multiples.min()), int(multiples.max())) == (low, high)


def packed(part: QuantizedWeight) -> torch.Tensor:
    """What the compiled decoder reads of a weight."""
    pieces: list[torch.Tensor] = []

    def memory(size: int) -> torch.Tensor:
        pieces.append(torch.zeros(size, dtype=torch.uint8))
        return pieces[-1]

    Packing(library(), memory, threads=2).projection(Projection((Part(part),)))
    return pieces[0]


@pytest.mark.parametrize("name", BLOCK_FORMATS)
def test_blocks_are_packed_as_their_codes_are(name: str, tmp_path: Path) -> None:
    ours, order = weight_of(tmp_path, name), torch.randperm(_ROWS)
    quants = QuantsInMemory(ours.format, ours.quants(torch.arange(_ROWS)))
    assert packed(quants).any()
    assert torch.equal(packed(ours), packed(quants))
    assert torch.equal(packed(Reordered(ours, order)), packed(Reordered(quants, order)))
    with pytest.raises(IndexError):
        packed(Reordered(ours, torch.tensor([0, _ROWS])))


@pytest.mark.parametrize("name", _PLAIN)
def test_a_plain_tensor_is_a_view_of_the_file(name: str, tmp_path: Path) -> None:
    contents = np.arange(96).astype(_PLAIN[name]).reshape(4, 24)
    file = written(tmp_path, name, contents)
    place = file.tensors["w"]
    found = tensor(file, place)
    assert found.shape == (4, 24)
    assert found.view(torch.uint8).numpy().tobytes() == contents.tobytes()
    file.data[place.start : place.start + 4] = bytes(4)
    assert found.view(torch.uint8).flatten()[:4].tolist() == [0] * 4


def test_released_pages_leave_memory_and_are_read_again(tmp_path: Path) -> None:
    file = written(tmp_path, "Q8_0", blocks_of("Q8_0", rows=10_000))
    place = file.tensors["w"]
    ours = weight(file, place)
    before = dequantized(ours, torch.float32)
    mapped = _resident(file)
    release(file, place)
    assert mapped > 7 << 20
    assert _resident(file) < mapped / 10
    assert torch.equal(dequantized(ours, torch.float32), before)


def _resident(file: GgufFile) -> int:
    """Bytes of the file's map that are in this process's memory."""
    lines = iter(Path("/proc/self/smaps").read_text().splitlines())
    found = 0
    for line in lines:
        if line.endswith(str(file.path)):
            found += next(int(entry.split()[1]) << 10 for entry in lines if entry.startswith("Rss:"))
    return found
