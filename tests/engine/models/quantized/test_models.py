"""Whole models with quantized weights against transformers with the dequantized weights."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from outrider.engine.errors import ModelError
from outrider.engine.models.config import ModelConfig
from outrider.engine.models.llama import LlamaModel, open_weights
from outrider.engine.models.operators.quantized_linear import quantized_linear
from outrider.engine.models.quantized.float8 import WHOLE
from outrider.engine.models.weights import Packer, WeightLoader
from outrider.kernels.linear.gpu import GpuLinear
from outrider.kernels.shapes import FLOAT8_BLOCKS
from outrider.native.quantized import QuantFormat, Quants, QuantsInMemory
from outrider.native.weights import Part
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from tests.engine.models.checkpoints import SHAPE, tokens
from tests.engine.models.quantized.writers import FORMATS, Format, rewrite
from tests.engine.models.runs import PAGE_SIZE, chunks, whole
from tests.kernels.choosing import kernels
from tests.kernels.device import DEVICE

NAMES = [form.name for form in FORMATS]
LENGTH = 40
_FEW = 8
WIDE = {"hidden_size": 128, "intermediate_size": 192, "num_attention_heads": 4, "num_key_value_heads": 2}


@pytest.fixture
def _plain_torch() -> Iterator[None]:
    """Every operator in float32, so that only the weights differ from the model before."""
    with kernels("torch"):
        yield


def save(directory: Path, form: Format, layers: int = 1) -> Tensor:
    """Writes a quantized model; transformers' logits with the dequantized weights."""
    torch.manual_seed(3)
    theirs = LlamaForCausalLM(LlamaConfig(**SHAPE | WIDE | {"num_hidden_layers": layers})).eval()
    with torch.no_grad():
        for weight in theirs.parameters():
            weight.add_(torch.randn_like(weight) * 0.1)
    theirs.save_pretrained(directory)
    numbers = rewrite(directory, form)
    theirs.load_state_dict(theirs.state_dict() | numbers)
    with torch.inference_mode():
        return theirs(tokens(LENGTH)[None]).logits[0]


def form_of(name: str) -> Format:
    return FORMATS[NAMES.index(name)]


@pytest.mark.usefixtures("_plain_torch")
@pytest.mark.parametrize("name", NAMES)
def test_logits_are_those_of_the_numbers(name: str, tmp_path: Path) -> None:
    expected = save(tmp_path, form_of(name))
    ours = LlamaModel.load(tmp_path, dtype="float32")
    torch.testing.assert_close(whole(ours, tokens(LENGTH)), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["awq", "gptq with zero points", "gptq in 8 bits", "packed", "integers", "fp8"])
def test_a_cpu_runs_any_format_near_its_numbers(name: str, tmp_path: Path) -> None:
    """Compiled matmuls with quantized weights round their rows to eight bits."""
    expected = save(tmp_path, form_of(name))
    logits = whole(LlamaModel.load(tmp_path, dtype="float32"), tokens(LENGTH))
    assert (logits - expected).square().mean().sqrt() < 0.03 * expected.std()


@pytest.mark.parametrize("name", ["awq", "gptq in 8 bits with zero points", "packed", "integers", "fp8"])
def test_a_model_on_triton_agrees_with_its_numbers(name: str, tmp_path: Path) -> None:
    expected = save(tmp_path, form_of(name))
    with kernels("triton"):
        ours = LlamaModel.load(tmp_path, dtype="float32", device=DEVICE.type)
        logits = whole(ours, tokens(LENGTH).to(DEVICE)).cpu()
    torch.testing.assert_close(logits, expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", ["awq", "integers"])
def test_strict_bits_do_not_depend_on_how_tokens_come(name: str, tmp_path: Path) -> None:
    save(tmp_path, form_of(name))
    ours = LlamaModel.load(tmp_path, determinism="strict")
    ids, pool = tokens(LENGTH), ours.new_pool(8, PAGE_SIZE)
    assert torch.equal(chunks(ours, pool, ids, [1, 7, 17, 15], range(5)), whole(ours, ids))


@pytest.mark.usefixtures("_plain_torch")
@pytest.mark.parametrize("name", ["awq", "packed", "integers"])
def test_modules_that_are_excepted_keep_their_weights(name: str, tmp_path: Path) -> None:
    excepted = ("lm_head", "model.layers.0.mlp.down_proj", "model.layers.0.self_attn.k_proj")
    expected = save(tmp_path, replace(form_of(name), exceptions=excepted))
    ours = LlamaModel.load(tmp_path, dtype="float32")
    torch.testing.assert_close(whole(ours, tokens(LENGTH)), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.usefixtures("_plain_torch")
@pytest.mark.parametrize("exceptions", [("lm_head",), ()], ids=["a plain output layer", "a quantized output layer"])
@pytest.mark.parametrize("name", ["integers", "floats by row", "fp8"])
def test_the_output_layer_holds_though_the_configuration_says_tied(
    name: str, exceptions: tuple[str, ...], tmp_path: Path
) -> None:
    expected = save(tmp_path, replace(form_of(name), exceptions=exceptions))
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"tie_word_embeddings": True}))
    ours = LlamaModel.load(tmp_path, dtype="float32")
    torch.testing.assert_close(whole(ours, tokens(LENGTH)), expected, rtol=1e-4, atol=1e-4)


def test_quants_and_plain_weights_stand_side_by_side_on_triton(tmp_path: Path) -> None:
    expected = save(tmp_path, replace(form_of("packed"), exceptions=("lm_head", "model.layers.0.self_attn.k_proj")))
    with kernels("triton"):
        ours = LlamaModel.load(tmp_path, dtype="float32", device=DEVICE.type)
        logits = whole(ours, tokens(LENGTH).to(DEVICE)).cpu()
    torch.testing.assert_close(logits, expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", ["fp8 in blocks of 128", "floats by tensor", "floats by row"])
def test_weights_in_eight_bit_floats_stay_so_on_triton(name: str, tmp_path: Path) -> None:
    save(tmp_path, form_of(name))
    with kernels("triton"):
        packer = Packer(torch.bfloat16, DEVICE, strict=True, quantization=None)
        source, config = open_weights(tmp_path, "fp8"), ModelConfig.load(tmp_path)
        loader = WeightLoader(source, config, torch.bfloat16, DEVICE, packer, quantized=True)
        for load in (loader.qkv, loader.attention_output, loader.gate_up, loader.down):
            linear = load("model.layers.0")
            assert isinstance(linear, GpuLinear)
            kept = linear.weight
            assert kept.words.dtype == torch.float8_e4m3fn
            assert kept.scales is not None
            assert kept.words.nbytes + kept.scales.nbytes <= 1.05 * linear.in_features * linear.out_features


def test_scales_of_tensors_that_are_multiplied_together_stay_apart() -> None:
    x, parts, results = torch.randn(3, 200, dtype=torch.bfloat16, device=DEVICE), [], []
    for scale in (0.01, 0.5, 3.0):
        quants, scales = torch.randn(40, 200).to(torch.float8_e4m3fn), torch.full((40, 1), scale)
        form = QuantFormat(8, WHOLE, floats=True)
        parts.append(Part(QuantsInMemory(form, Quants(quants.view(torch.uint8), scales)), None))
        results.append(x.float() @ (quants.float().to(DEVICE).T * scale))
    with kernels("triton"):
        linear = quantized_linear(parts, torch.bfloat16, DEVICE, few_rows=True)
        assert isinstance(linear, GpuLinear)
        for part, expected in zip(linear(x).float().split(40, 1), results, strict=True):
            torch.testing.assert_close(part, expected, atol=8e-3 * expected.abs().max().item(), rtol=8e-3)


def test_a_model_on_triton_rounds_rows_beside_eight_bit_floats(tmp_path: Path) -> None:
    """Each matmul's inputs are off by up to a sixteenth of themselves."""
    expected = save(tmp_path, form_of("fp8 in blocks of 128"))[:_FEW]
    with kernels("triton"):
        ours = LlamaModel.load(tmp_path, dtype="float32", device=DEVICE.type, quantization="fp8")
        logits = whole(ours, tokens(LENGTH)[:_FEW].to(DEVICE)).cpu()
    shape = ours.kernel_shape(PAGE_SIZE)
    assert (shape.quantization, shape.quants) == (None, FLOAT8_BLOCKS)
    off = (logits - expected).square().mean().sqrt() / expected.std()
    assert 1e-4 < off < 0.12


@pytest.mark.usefixtures("_plain_torch")
def test_a_checkpoint_in_eight_bit_floats_may_be_called_so(tmp_path: Path) -> None:
    expected = save(tmp_path, form_of("fp8"))
    ours = LlamaModel.load(tmp_path, dtype="float32", quantization="fp8")
    torch.testing.assert_close(whole(ours, tokens(LENGTH)), expected, rtol=1e-4, atol=1e-4)
    with pytest.raises(ModelError, match="quantization is 'int8', which must be none or fp8 here"):
        LlamaModel.load(tmp_path, quantization="int8")


@pytest.mark.parametrize("quantization", ["int8", "int4", "fp8"])
def test_a_quantized_checkpoint_is_not_quantized_again(quantization: str, tmp_path: Path) -> None:
    save(tmp_path, form_of("awq"))
    with pytest.raises(ModelError, match=f"is quantized already; quantization is '{quantization}', which must be none"):
        LlamaModel.load(tmp_path, quantization=quantization)  # type: ignore[arg-type]


def test_a_method_that_is_not_supported_is_refused_by_name(tmp_path: Path) -> None:
    save(tmp_path, form_of("awq"))
    config = json.loads((tmp_path / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "bitsandbytes", "load_in_4bit": True}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ModelError, match=r'config.json: quantization_config: quant_method is "bitsandbytes"; it must'):
        LlamaModel.load(tmp_path)
