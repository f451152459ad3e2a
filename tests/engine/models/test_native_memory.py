"""The memory of the compiled decoder's weights."""

from __future__ import annotations

import gc

import pytest
import torch
from outrider.kernels.huge_pages import CHUNK, HUGE, Arena
from outrider.native.decoder import NativeDecoder
from outrider.native.library import ffi, library
from outrider.native.weights import DecoderShape, LayerWeights, Part, Projection
from torch import Tensor

from tests.kernels.smaps import grants_huge_pages, mapped_bytes, mapping_at

_SHAPE = DecoderShape(hidden=48, heads=3, kv_heads=1, head_dim=16, intermediate=80, vocabulary=67, eps=1e-5)


def _decoder() -> NativeDecoder:
    def weight(outputs: int, inputs: int) -> Projection:
        return Projection((Part(torch.randn(outputs, inputs), torch.randn(outputs)),))

    def layer() -> LayerWeights:
        projections = weight(80, 48), weight(48, 48), weight(160, 48), weight(48, 80)
        return LayerWeights(None, projections[0], None, projections[1], None, projections[2], projections[3])

    rope: Tensor = torch.ones(32, 8, dtype=torch.complex64)
    layers = (layer() for _ in range(2))
    embedding, norm, output = torch.randn(67, 48), torch.ones(48), weight(67, 48)
    return NativeDecoder(
        library(), _SHAPE, torch.float32, embedding, layers, norm, output, rope, threads=1, memory=Arena().take
    )


def _packed(decoder: NativeDecoder) -> list[tuple[int, int]]:
    """Addresses and sizes of the weights, as a step reads them."""
    size = decoder.library.functions.outrider_packed_size
    return [(int(ffi.cast("uintptr_t", each.weight)), size(each.n, each.k, 0)) for each in decoder.weights]


def test_weights_lie_one_behind_the_other_as_a_step_reads_them() -> None:
    decoder = _decoder()
    packed = _packed(decoder)
    assert packed[0][0] % HUGE == 0
    assert [address for address, _ in packed[1:]] == [address + size for address, size in packed[:-1]]


@pytest.mark.skipif(not grants_huge_pages(), reason="Linux grants no huge pages here")
def test_weights_lie_where_linux_may_put_huge_pages() -> None:
    decoder = _decoder()
    around, flags = mapping_at(_packed(decoder)[0][0])
    assert flags["THPeligible"] == "1"
    assert all(address in around and address + size - 1 in around for address, size in _packed(decoder))


def test_a_decoder_that_goes_gives_its_memory_back() -> None:
    decoder = _decoder()
    gc.collect()
    held = mapped_bytes()
    del decoder
    assert held - mapped_bytes() >= CHUNK
