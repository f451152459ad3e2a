"""Quantized weights: the compiled decoder's projections, at every level of instructions."""

from __future__ import annotations

import pytest
import torch
from outrider.kernels.huge_pages import Arena
from outrider.native import library as loading
from outrider.native.decoder import NativeDecoder
from outrider.native.levels import supported_levels
from outrider.native.library import Library
from outrider.native.quantized import UNIT_GROUP, QuantFormat, Quants, QuantsInMemory, Reordered, dequantized
from outrider.native.weights import DecoderShape, LayerWeights, Part, Projection
from torch import Tensor

_FORMS = {
    "Q4_0": QuantFormat(4, 32, zero=8),
    "Q5_0": QuantFormat(5, 32, zero=16),
    "Q8_0": QuantFormat(8, 32, zero=128),
    "Q4_K": QuantFormat(4, 32, has_minima=True, has_units=True),
    "Q5_K": QuantFormat(5, 32, has_minima=True, has_units=True),
    "Q6_K": QuantFormat(6, 16, zero=32, has_units=True),
    "Q4_1": QuantFormat(4, 32, has_minima=True),
    "Q5_1": QuantFormat(5, 32, has_minima=True),
    "4 bits in groups of 128": QuantFormat(4, 128, has_minima=True),
    "8 bits in groups of 64": QuantFormat(8, 64, has_minima=True),
    "8 bits, a scale for each output": QuantFormat(8, 768, zero=128),
}
_INPUTS, _OUTPUTS = 768, 83
_TRIED = [level for level in supported_levels() if level.name != "amx"]


@pytest.fixture(scope="module", params=_TRIED, ids=lambda level: level.name)
def library(request: pytest.FixtureRequest) -> Library:
    """The library of each level."""
    return loading.load(request.param)


def _weight(form: QuantFormat, outputs: int = _OUTPUTS, inputs: int = _INPUTS) -> QuantsInMemory:
    """Random quants with scales that binary16 holds."""
    random = torch.Generator().manual_seed(form.bits * 1000 + form.group)

    def halves(columns: int, least: float) -> Tensor:
        return (torch.rand(outputs, columns, generator=random) * least + least).half().float()

    def multiples(units: Tensor, low: int, high: int) -> Tensor:
        each = torch.randint(low, high, (outputs, inputs // form.group), generator=random)
        return each * units.repeat_interleave(UNIT_GROUP // form.group, 1)

    quants = torch.randint(1 << form.bits, (outputs, inputs), generator=random).byte()
    if not form.has_units:
        groups = inputs // form.group
        return QuantsInMemory(
            form, Quants(quants, halves(groups, 0.01), halves(groups, 0.07) if form.has_minima else None)
        )
    units = halves(inputs // UNIT_GROUP, 1e-3)
    if not form.has_minima:
        return QuantsInMemory(form, Quants(quants, multiples(units, -128, 128), None, units))
    minima = halves(inputs // UNIT_GROUP, 1e-2)
    return QuantsInMemory(form, Quants(quants, multiples(units, 0, 64), multiples(minima, 0, 64), units, minima))


def _decoder(library: Library, output: Projection, embedding: Tensor | QuantsInMemory) -> NativeDecoder:
    """A decoder without layers over a projection."""
    shape = DecoderShape(_INPUTS, 2, 1, 16, 32, output.parts[0].weight.shape[0], 1e-6)
    layers: list[LayerWeights] = []
    norm, rope = torch.ones(_INPUTS), torch.ones(8, 8, dtype=torch.complex64)
    return NativeDecoder(library, shape, torch.bfloat16, embedding, layers, norm, output, rope, 1, Arena().take)


def _projection(library: Library, weight: QuantsInMemory, rows: Tensor) -> Tensor:
    table = torch.zeros(len(weight.all.quants), _INPUTS)
    return _decoder(library, Projection((Part(weight),)), table).logits(rows)


def _rows(count: int) -> Tensor:
    return torch.randn(count, _INPUTS, generator=torch.Generator().manual_seed(count))


@pytest.mark.parametrize("form", _FORMS.values(), ids=_FORMS.keys())
def test_a_product_differs_from_that_of_the_numbers_by_the_rounding_of_its_rows(
    library: Library, form: QuantFormat
) -> None:
    weight, rows = _weight(form), _rows(9)
    expected = rows @ dequantized(weight, torch.float32).T
    groups = rows.view(9, -1, 128)
    scales = groups.abs().amax(2, keepdim=True) / 127
    rounded = ((groups / scales).round() * scales).flatten(1)
    exact = rounded @ dequantized(weight, torch.float32).T
    projection = _projection(library, weight, rows)
    torch.testing.assert_close(projection, exact, rtol=1e-4, atol=1e-4 * float(expected.std()))
    assert (projection - expected).std() < 0.02 * expected.std()


@pytest.mark.parametrize("form", _FORMS.values(), ids=_FORMS.keys())
def test_a_row_has_the_same_bits_whatever_rows_stand_beside_it(library: Library, form: QuantFormat) -> None:
    weight, rows = _weight(form), _rows(21)
    alone = torch.cat([_projection(library, weight, row[None]) for row in rows])
    for count in (2, 3, 7, 8, 9, 16, 21):
        assert torch.equal(_projection(library, weight, rows[:count]), alone[:count])


@pytest.mark.parametrize("form", _FORMS.values(), ids=_FORMS.keys())
def test_the_largest_quants_times_the_largest_rows_do_not_overflow(library: Library, form: QuantFormat) -> None:
    weight, rows = _weight(form), torch.tensor([[1.0], [-1.0]]).repeat(1, _INPUTS)
    weight.all.quants.fill_((1 << form.bits) - 1)
    expected = rows @ dequantized(weight, torch.float32).T
    torch.testing.assert_close(_projection(library, weight, rows), expected, rtol=1e-4, atol=1e-3)


def test_infinite_and_missing_numbers_stay_visible(library: Library) -> None:
    rows = _rows(3)
    rows[0, 5], rows[1, 700] = float("inf"), float("nan")
    projection = _projection(library, _weight(_FORMS["Q4_K"]), rows)
    assert not projection[:2].isfinite().any()
    assert projection[2].isfinite().all()


def test_a_row_of_zeros_gives_zeros(library: Library) -> None:
    assert not _projection(library, _weight(_FORMS["Q8_0"]), torch.zeros(2, _INPUTS)).any()


def test_parts_of_several_forms_stand_side_by_side(library: Library) -> None:
    forms = [_FORMS["Q4_K"], _FORMS["Q6_K"], _FORMS["Q5_0"]]
    weights = [_weight(form, outputs) for form, outputs in zip(forms, (32, 48, 19), strict=True)]
    rows, biases = _rows(5), [None, torch.randn(48), torch.randn(19)]
    parts = tuple(Part(weight, bias) for weight, bias in zip(weights, biases, strict=True))
    shape = DecoderShape(_INPUTS, 2, 1, 16, 32, 99, 1e-6)
    joined = NativeDecoder(
        library, shape, torch.bfloat16, torch.zeros(99, _INPUTS), [], torch.ones(_INPUTS), Projection(parts),
        torch.ones(8, 8, dtype=torch.complex64), 1, Arena().take,
    ).logits(rows)  # fmt: skip
    single = [
        _projection(library, weight, rows) + (0 if bias is None else bias)
        for weight, bias in zip(weights, biases, strict=True)
    ]
    assert torch.equal(joined, torch.cat(single, 1))


def test_reordered_output_features_are_those_of_the_weight() -> None:
    weight, order = _weight(_FORMS["Q4_K"]), torch.randperm(_OUTPUTS)
    assert torch.equal(dequantized(Reordered(weight, order), torch.float32), dequantized(weight, torch.float32)[order])


@pytest.mark.parametrize(
    ("form", "inputs"),
    [(QuantFormat(4, 32, zero=8), 48), (QuantFormat(3, 32), 64), (_FORMS["Q6_K"], 128), (QuantFormat(4, 48), 96)],
)
def test_a_form_without_compiled_products_is_an_error(library: Library, form: QuantFormat, inputs: int) -> None:
    weight = QuantsInMemory(
        form, Quants(torch.zeros(16, inputs, dtype=torch.uint8), torch.ones(16, inputs // form.group))
    )
    with pytest.raises(ValueError, match="there is no compiled code for QuantFormat"):
        _decoder(library, Projection((Part(weight),)), torch.zeros(16, _INPUTS))
