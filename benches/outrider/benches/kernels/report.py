"""Compiles every kernel for GPUs, present or not: ``python -m outrider.benches.kernels.report [--out DIR] ...``.

It prints properties of the compiled kernel of each launch of each op: warps, registers, bytes spilled, shared memory,
and which instructions multiply matrices and copy memory.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from outrider.kernels.catalogue import Entry, entries
from outrider.kernels.compilation import CAPABILITIES, CompiledKernel, compile_all, facts, key, runs, target
from outrider.kernels.launch import INTERPRETED
from outrider.kernels.shapes import SHAPES, names
from rich.console import Console
from rich.table import Table

_WIDTH = 160


@dataclass(frozen=True, slots=True)
class Line:
    """One kernel of one op on one kind of GPU."""

    op: str
    variant: str
    kernel: str
    gpu: str
    compiled: CompiledKernel

    @property
    def cells(self) -> dict[str, str | int]:
        """Values by column."""
        head = {"op": self.op, "variant": self.variant, "kernel": self.kernel, "gpu": self.gpu}
        return head | asdict(self.compiled)


def lines(shapes: Sequence[str], gpus: Sequence[str]) -> Iterator[Line]:
    """The compiled kernels of ``shapes``, each distinct one once per GPU; each GPU has a process of its own."""
    with ProcessPoolExecutor(len(gpus), multiprocessing.get_context("spawn")) as pool:
        for of_gpu in pool.map(partial(_lines, shapes), gpus):
            yield from of_gpu


def _lines(shapes: Sequence[str], gpu: str) -> list[Line]:
    distinct: dict[object, Entry] = {}
    for shape in shapes:
        for entry in entries(SHAPES[shape]):
            if runs(entry.launch, CAPABILITIES[gpu]):
                distinct.setdefault(key(entry.launch), entry)
    with target(CAPABILITIES[gpu]):
        kernels = compile_all(entry.launch for entry in distinct.values())
    return [
        Line(entry.op, entry.variant, entry.launch.kernel.__name__, gpu, facts(kernel))
        for entry, kernel in zip(distinct.values(), kernels, strict=True)
    ]


def main() -> None:
    """Prints the table, and writes it where asked."""
    options = _options()
    if INTERPRETED:
        environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
        os.execve(sys.executable, [sys.executable, "-m", "outrider.benches.kernels.report", *sys.argv[1:]], environment)
    compiled_lines = list(lines(options.shapes, options.gpus))
    console = Console(width=None if sys.stdout.isatty() else _WIDTH)
    console.print(_table(compiled_lines))
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
        cells = [line.cells for line in compiled_lines]
        (options.out / "kernels.json").write_text(json.dumps(cells, indent=1) + "\n")
        (options.out / "kernels.md").write_text(_markdown(cells))
        (options.out / "most.md").write_text(_markdown(most(compiled_lines, options.gpus)))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m outrider.benches.kernels.report", description=__doc__)
    parser.add_argument("--shapes", type=names(SHAPES), default=list(SHAPES), help=f"of {', '.join(SHAPES)}")
    parser.add_argument(
        "--gpus", type=names(CAPABILITIES), default=list(CAPABILITIES), help=f"of {', '.join(CAPABILITIES)}"
    )
    parser.add_argument("--out", type=Path, help="folder for kernels.json, kernels.md and most.md")
    return parser.parse_args()


def most(lines: Sequence[Line], gpus: Sequence[str]) -> list[dict[str, str | int]]:
    """For each kernel of each op the number of its compilations and the most that one takes, on each of ``gpus``."""
    found: dict[tuple[str, str], dict[str, list[CompiledKernel]]] = {}
    for line in lines:
        found.setdefault((line.op, line.kernel), {}).setdefault(line.gpu, []).append(line.compiled)

    def cell(of_gpus: dict[str, list[CompiledKernel]], figure: Callable[[list[CompiledKernel]], object]) -> str:
        return ", ".join(str(figure(of_gpus[gpu])) if gpu in of_gpus else "–" for gpu in gpus)

    def instructions(of_gpus: dict[str, list[CompiledKernel]], name: str) -> str:
        used = {getattr(each, name) for compiled in of_gpus.values() for each in compiled}
        return ", ".join(sorted(used - {"none"}))

    return [
        {
            "op": op,
            "kernel": kernel,
            "kernels": cell(each, len),
            "registers": cell(each, lambda compiled: max(one.registers for one in compiled)),
            "spilled": cell(each, lambda compiled: max(one.spilled for one in compiled)),
            "shared": cell(each, lambda compiled: f"{max(one.shared for one in compiled) / 1024:.1f}"),
            "matmul": instructions(each, "matmuls"),
            "copies": instructions(each, "copies"),
        }
        for (op, kernel), each in found.items()
    ]


def _table(lines: Sequence[Line]) -> Table:
    table = Table(title="Kernels as compiled")
    numbers = {"warps", "registers", "spilled", "shared", "load"}
    for column in lines[0].cells:
        table.add_column(column, justify="right" if column in numbers else "left")
    for line in lines:
        table.add_row(*map(str, line.cells.values()), style="red" if line.compiled.spilled else "")
    return table


def _markdown(cells: Sequence[dict[str, str | int]]) -> str:
    rows = [list(cells[0]), ["---"] * len(cells[0]), *([str(value) for value in row.values()] for row in cells)]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


if __name__ == "__main__":
    main()
