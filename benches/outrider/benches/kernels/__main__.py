"""Measures kernels: ``python -m outrider.benches.kernels [--cpu] [--shapes ...] [--out DIR]``.

On a GPU, each op at each shape and step beside torch, and as a share of the rates of a large copy and a large matrix
matmul in the same run. Without one, the least times on ``--device-model``. With ``--cpu``, attention and
matmuls of the first shape on this CPU beside torch's, alternately.
"""

from __future__ import annotations

import argparse
import platform
import sys
from pathlib import Path

import torch
from outrider.benches.kernels import cpu, sections
from outrider.benches.kernels.cases import STEPS, Case, cases
from outrider.benches.kernels.goals import goals
from outrider.benches.kernels.roofline import DEVICES
from outrider.kernels.launch import INTERPRETED
from outrider.kernels.shapes import SHAPES, names
from outrider.native.share import cores
from rich.console import Console

_MEASURED = [name for name, shape in SHAPES.items() if shape.quants is None]
_CPU_SHAPES = ["pocket"]
_GPU_SHAPES = ["llama-3.1-8b", "llama-3.1-8b-int8", "llama-3.1-8b-int4", "qwen3-32b-fp8", "qwen3-30b-a3b"]
_CPU_ROWS = [1, 4, 8, 16, 32]
_CPU_CONTEXT = 300
_WIDTH = 140


def main() -> None:
    """Prints the tables and writes them with their plots."""
    options = _options()
    torch.set_num_threads(options.threads)
    console = Console(width=None if sys.stdout.isatty() else _WIDTH)
    machine = _machine()
    console.print(" · ".join(machine.values()))
    section = _section(options, console)
    section.facts |= {"machine": machine}
    console.print(section.table())
    section.save(options.out)
    console.print(f"written to {options.out / section.name}.json and .png")


def _section(options: argparse.Namespace, console: Console) -> sections.Section:
    if options.cpu:
        shape = SHAPES[(options.shapes or _CPU_SHAPES)[0]]
        title = f"{shape.name} on CPU, {options.threads} threads, {_CPU_CONTEXT} tokens of context"
        return sections.on_cpu(cpu.measure(shape, _CPU_ROWS, _CPU_CONTEXT), title)
    shapes = [SHAPES[name] for name in options.shapes or _GPU_SHAPES]
    chosen = list(cases(shapes, (STEPS[name] for name in options.steps)))
    if torch.cuda.is_available() and not INTERPRETED:
        return _measured(chosen)
    device = DEVICES[options.device_model]
    console.print(f"There is no GPU here; these are the least times on {device.name}, not measurements.")
    return sections.predicted((case for case in chosen if case.strict), options.device_model, device)


def _measured(chosen: list[Case]) -> sections.Section:
    from outrider.benches.kernels import gpu

    gauge = gpu.Gauge(torch.device("cuda"), gpu.seconds)
    with torch.inference_mode():
        most = gauge.ceiling(case.work.factors for case in chosen)
        timings = list(gauge.measure(chosen, most))
    for goal in goals(timings, most):
        sign, verdict = ("≥" if goal.least else "≤"), ("met" if goal.met else "missed")
        print(f"{goal.name}: {goal.worst:.3g} ({goal.case}), to be {sign} {goal.limit:g}: {verdict}")
    return sections.measured(timings, torch.cuda.get_device_name(), most)


def _machine() -> dict[str, str]:
    machine = {
        "cpu": f"{platform.processor() or platform.machine()}, {cores()} cores",
        "python": f"python {platform.python_version()}",
        "torch": f"torch {torch.__version__}",
    }
    if torch.cuda.is_available():
        import triton

        machine |= {"gpu": torch.cuda.get_device_name(), "triton": f"triton {triton.__version__}"}
    return machine


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m outrider.benches.kernels", description=__doc__)
    parser.add_argument("--cpu", action="store_true", help="measure this CPU")
    parser.add_argument("--shapes", type=names(_MEASURED), help=f"of {', '.join(_MEASURED)}")
    parser.add_argument("--steps", type=names(STEPS), default=list(STEPS), help=f"of {', '.join(STEPS)}")
    parser.add_argument("--device-model", choices=list(DEVICES), default="h200", help="whose least times to print")
    parser.add_argument("--threads", type=int, default=1, help="of the CPU")
    parser.add_argument("--out", type=Path, default=Path("out/kernels"), help="folder for JSON and plots")
    return parser.parse_args()


if __name__ == "__main__":
    main()
