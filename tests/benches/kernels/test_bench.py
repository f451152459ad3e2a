"""The cases of the kernels' benchmark, and both sides of a measurement computing the same."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from outrider.benches.kernels import cpu
from outrider.benches.kernels.__main__ import main
from outrider.benches.kernels.cases import STEPS, Case, Step, Work, cases
from outrider.benches.kernels.goals import goals
from outrider.benches.kernels.gpu import Ceiling, Timing
from outrider.benches.kernels.pairs import PAIRS
from outrider.benches.kernels.roofline import DEVICES, predict
from outrider.kernels.shapes import SHAPES, ModelShape

from tests.kernels.device import DEVICE

TOY = ModelShape("toy", 48, 4, 2, 64, 40, 64, 2, torch.float32, torch.float32)
EXPERTS = replace(TOY, name="toy-experts", intermediate=16, experts=5, active=2)
STEP = Step("toy", 2, 6, 9)


@pytest.mark.parametrize("op", PAIRS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_both_sides_of_a_measurement_give_the_same(op: str, dtype: torch.dtype) -> None:
    shape = replace(EXPERTS if op == "experts" else TOY, dtype=dtype, kv_dtype=dtype)
    for case in cases([shape], [STEP]):
        if case.op == op:
            torch.manual_seed(0)
            pair = PAIRS[op](case, DEVICE)
            ours = pair.ours().clone().float()
            torch.testing.assert_close(ours, pair.theirs(*pair.inputs).float(), atol=4e-3, rtol=4e-3)


def test_both_sides_of_a_measurement_on_cpu_give_the_same() -> None:
    for ours, theirs in zip(*cpu.linear(24, 40, torch.float32, 3, 2), strict=True):
        torch.testing.assert_close(ours(), theirs())
    for rows in (1, 6):
        for ours, theirs in zip(*cpu.attention(TOY, rows, 21), strict=True):
            torch.testing.assert_close(ours(), theirs()[0].transpose(0, 1).flatten(1))


def test_work_is_counted_once_a_byte_and_twice_a_product() -> None:
    shape = replace(SHAPES["llama-3.1-8b"], kv_dtype=torch.int8)
    found = {(case.op, case.part): case.work for case in cases([shape], [STEPS["decode"]]) if case.strict}
    assert found["linear", "qkv"] == Work(2 * (4096 * 6144 + 4096 + 6144), 2 * 4096 * 6144, torch.bfloat16)
    tokens = 4097 * 2 * 8 * (128 + 4)
    assert found["tree_attention", ""] == Work(tokens + 2 * 4096 * 2, 4 * 4097 * 4096, torch.bfloat16)
    assert found["rms_norm", ""].flops == 0


@pytest.mark.parametrize(("rows", "chosen"), [(1, 2), (1000, 5)])
def test_weights_of_chosen_experts_are_counted_once(rows: int, chosen: int) -> None:
    [work] = [case.work for case in cases([EXPERTS], [Step("", rows, 1, 9)]) if case.op == "experts"]
    weights = chosen * 3 * 16 * 48
    assert work.moved == pytest.approx((weights + rows * (48 + 5 + 48)) * 4, abs=8)
    assert work.flops == 2 * rows * 2 * 3 * 16 * 48


@pytest.mark.parametrize("name", DEVICES)
def test_the_slower_of_memory_and_products_bounds_a_case(name: str) -> None:
    device = DEVICES[name]
    flops = device.flops[torch.bfloat16]
    for moved, products, seconds, bound in ((2.0, 1.0, 2.0, "memory"), (1.0, 3.0, 3.0, "matmuls")):
        work = Work(int(moved * device.bandwidth), int(products * flops))
        least = predict(Case("", "", SHAPES["pocket"], STEPS["decode"], work), device)
        assert (round(least.seconds, 6), least.bound) == (seconds, bound)


def test_without_a_gpu_the_least_times_are_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    steps = ["--shapes", "pocket", "--steps", "decode,prompt-512"]
    device = ["--device-model", "a100", "--threads", "1"]
    monkeypatch.setattr(sys, "argv", ["kernels", *steps, *device, "--out", str(tmp_path)])
    main()
    told = capsys.readouterr().out
    assert "There is no GPU here; these are the least times on A100 SXM 80 GB, not measurements." in told
    written = json.loads((tmp_path / "roofline-a100.json").read_text())
    assert written["source"] == "NVIDIA A100 Tensor Core GPU data sheet, without sparsity"
    assert {row["op"] for row in written["rows"]} >= {"rms_norm", "linear logits strict", "tree_attention strict"}
    assert (tmp_path / "roofline-a100.png").read_bytes().startswith(b"\x89PNG")


def test_a_step_that_is_not_known_is_refused_by_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["kernels", "--steps", "decode,march"])
    with pytest.raises(SystemExit, match="2"):
        main()
    assert "'march' is none of decode, decode-32, tree-8x16, prompt-512" in capsys.readouterr().err


def test_ops_with_two_modes_are_measured_in_both() -> None:
    modes = {(case.op, case.strict) for case in cases([TOY], [STEP])}
    assert {op for op, strict in modes if not strict} == {"linear", "tree_attention"}
    assert {op for op, strict in modes if strict} == {case.op for case in cases([TOY], [STEP])}


def timing(shape: str, op: str, part: str, step: str, microseconds: float, strict: bool = True) -> Timing:
    [case] = [c for c in cases([SHAPES[shape]], [STEPS[step]]) if (c.op, c.part, c.strict) == (op, part, strict)]
    seconds = microseconds * 1e-6
    return Timing(case, seconds, seconds, case.work.moved / seconds, case.work.flops / seconds, 0.5)


def test_figures_are_compared_with_their_goals() -> None:
    most = Ceiling(4e12, {})
    found = {
        bar.name.split()[0]: bar
        for bar in goals(
            [
                timing("llama-3.1-8b", "tree_attention", "", "decode-8k", 10.0),
                timing("llama-3.1-8b", "tree_attention", "", "decode-32k", 35.0),
                timing("llama-3.1-8b", "tree_attention", "", "decode", 1e9),
                timing("llama-3.1-8b", "tree_attention", "", "decode-8k", 1e9, strict=False),
                timing("llama-3.1-8b", "linear", "qkv", "decode", 20.0),
                timing("llama-3.1-8b", "linear", "qkv", "tree-64-8k", 24.0),
                timing("llama-3.1-8b-int4", "linear", "qkv", "decode", 5.0),
            ],
            most,
        )
    }
    assert set(found) == {"attention's", "a", "int4"}
    assert found["attention's"].worst == pytest.approx(8193 * 2 * 8 * 128 * 2 / 4e12 / 10e-6, rel=1e-2)
    assert found["attention's"].met
    assert found["a"].worst == pytest.approx(1.2)
    assert not found["a"].met
    assert found["int4"].worst == pytest.approx(4.0)
    assert found["int4"].met
