"""The training loop: worker processes over shared memory, resumed from checkpoints.

Weights, master weights and moments are flat buffers in shared memory. In each step, workers take micro-batches from a
common counter until the batch is done, so that a slow core delays the others by at most one micro-batch; each worker
then updates its share of the parameters. With one worker, every run gives the same bits.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.multiprocessing as mp
from outrider.training.pocket import data
from outrider.training.pocket.checkpoint import (
    TrainingClock,
    load_checkpoint,
    save_checkpoint,
    save_weights,
)
from outrider.training.pocket.optim import OptimizerSettings, Slot, State, divide, layout, step
from outrider.training.pocket.tasks import BoundTask, Task
from torch import Tensor
from torch.multiprocessing.spawn import spawn
from tqdm import tqdm


@dataclass(frozen=True)
class Plan:
    """Budget and batch sizes of training.

    The budget is `minutes` of training time, or `steps` when that is above zero. Step sizes rise over `warmup`
    steps, hold, and fall to zero over the last `cooldown` share of the budget. The last `long_share` of the budget uses
    windows of `long_length` tokens.
    """

    minutes: float
    steps: int = 0
    batch: int = 4096
    micro: int = 1024
    length: int = 512
    long_length: int = 2048
    long_share: float = 0.08
    warmup: int = 40
    cooldown: float = 0.5
    optimizer: OptimizerSettings = field(default_factory=OptimizerSettings)
    seed: int = 0
    workers: int = 1
    device: str = "cpu"
    save_minutes: float = 3.0
    check_tokens: int = 24576

    def progress(self, clock: TrainingClock) -> float:
        """Spent share of the budget, 0..1."""
        spent = clock.step / self.steps if self.steps else clock.seconds / (60 * self.minutes)
        return min(1.0, spent)

    def scale(self, number: int, progress: float) -> float:
        """Factor on the step sizes at update `number` (from 1), at `progress` in 0..1 of the budget."""
        return min(1.0, number / max(1, self.warmup), max(0.0, 1.0 - progress) / max(1e-9, self.cooldown))


def _share(buffer: Tensor) -> Tensor:
    shared: Tensor = buffer.share_memory_()  # type: ignore[no-untyped-call]
    return shared


class Shared:
    """The buffers and counters that workers share."""

    def __init__(self, size: int, workers: int, dtype: torch.dtype, device: torch.device) -> None:
        def zeros(*shape: int, kind: torch.dtype = torch.float32) -> Tensor:
            buffer = torch.zeros(*shape, dtype=kind, device=device)
            return _share(buffer) if workers > 1 else buffer

        self.weights = zeros(size, kind=dtype)
        self.state = State(zeros(size), zeros(size), zeros(size))
        self.gradients = zeros(workers, size)
        self.losses = zeros(workers, kind=torch.float64)
        self.claimed = mp.get_context("spawn").Value("l", 0)
        self.barrier = mp.get_context("spawn").Barrier(workers)
        self.plan_progress = zeros(2, kind=torch.float64)

    def claim(self, limit: int) -> Iterator[int]:
        """Numbers below `limit` that no other worker has taken."""
        while True:
            with self.claimed.get_lock():
                number = int(self.claimed.value)
                self.claimed.value = number + 1
            if number >= limit:
                return
            yield number


def attach(bound: BoundTask, slots: list[Slot], weights: Tensor) -> Tensor:
    """Turns the module's parameters into views of `weights`, and their `.grad`s into views of the returned gradient."""
    gradient = torch.zeros_like(weights)
    parameters = dict(bound.module.named_parameters())
    for slot in slots:
        parameters[slot.name].data = slot.of(weights)
        parameters[slot.name].grad = slot.of(gradient)
    return gradient


def run(task: Task, plan: Plan, stream: Path, heldout: Path, out: Path) -> TrainingClock:
    """Trains `task` on the stream file, from `out`/checkpoint.safetensors if that exists; returns the final clock.

    Writes weights to `out`/weights.safetensors (float32), and a line for each checkpoint to `out`/log.jsonl.
    """
    out.mkdir(parents=True, exist_ok=True)
    device, dtype = torch.device(plan.device), torch.bfloat16
    bound = task.build(torch.device("cpu"), torch.float32, plan.seed)
    slots = layout(bound.module)
    shared = Shared(slots[-1].stop, plan.workers, dtype, device)
    for slot in slots:
        slot.of(shared.state.master).copy_(bound.module.get_parameter(slot.name).detach())
    checkpoint = out / "checkpoint.safetensors"
    clock = load_checkpoint(checkpoint, shared.state) if checkpoint.exists() else TrainingClock()
    shared.weights.copy_(shared.state.master)
    arguments = (task, plan, stream, heldout, out, shared, clock)
    if plan.workers == 1:
        Worker(0, *arguments).train()
    else:
        spawn(_spawned, arguments, plan.workers)  # type: ignore[no-untyped-call]
    save_weights(shared.state, slots, out / "weights.safetensors")
    return load_checkpoint(checkpoint, shared.state)


def _spawned(rank: int, *arguments: Any) -> None:
    torch.set_num_threads(1)
    Worker(rank, *arguments).train()


class Worker:
    """One process of a training run; rank 0 also keeps the clock, the log and the checkpoints."""

    def __init__(
        self,
        rank: int,
        task: Task,
        plan: Plan,
        stream: Path,
        heldout: Path,
        out: Path,
        shared: Shared,
        clock: TrainingClock,
    ) -> None:
        self.rank, self.plan, self.out, self.shared, self.clock = rank, plan, out, shared, clock
        self.device = torch.device(plan.device)
        self.bound = task.build(self.device, shared.weights.dtype, plan.seed)
        self.slots = layout(self.bound.module)
        self.own_slots = divide(self.slots, plan.workers)[rank]
        self.gradient = attach(self.bound, self.slots, shared.weights)
        self.windows = data.Windows(data.read(stream), plan.seed)
        self.checks = data.rows(data.read(heldout)[: plan.check_tokens + 1], plan.length)
        self.saved = clock.seconds

    def train(self) -> None:
        """Trains until the budget is spent."""
        done = 100 * self.plan.progress(self.clock)
        with tqdm(total=100.0, initial=done, unit="%", disable=self.rank > 0, desc=self.out.name, mininterval=5) as bar:
            while (progress := self.plan.progress(self.clock)) < 1.0:
                started = time.monotonic()
                loss = self.update(progress)
                self.tick(time.monotonic() - started)
                self.report(bar, loss)
        self.save_progress()

    def update(self, progress: float) -> float:
        """Runs one optimiser step; returns the batch's mean loss."""
        plan, shared = self.plan, self.shared
        length = plan.long_length if progress >= 1.0 - plan.long_share else plan.length
        rows = max(1, plan.micro // length)
        count = max(1, plan.batch // (rows * length))
        shared.gradients[self.rank].zero_()
        shared.losses[self.rank] = 0.0
        for number in shared.claim(count):
            seen = self.clock.seen + number * rows * length
            loss = self.bound.loss(self.windows.take(seen, rows, length).to(self.device))
            (loss / count).backward()  # type: ignore[no-untyped-call]
            shared.gradients[self.rank] += self.gradient
            shared.losses[self.rank] += loss.item() / count
            self.gradient.zero_()
        shared.barrier.wait()
        self.clock.step += 1
        self.clock.seen += count * rows * length
        self.apply(plan.scale(self.clock.step, progress))
        loss_sum = float(shared.losses.sum())
        shared.barrier.wait()
        return loss_sum

    def apply(self, scale: float) -> None:
        """Updates this worker's share of the parameters."""
        shared = self.shared
        if self.rank == 0:
            shared.claimed.value = 0
        gradient = shared.gradients[0] if self.plan.workers == 1 else shared.gradients.sum(0)
        step(shared.state, self.own_slots, gradient, self.plan.optimizer, scale, self.clock.step)
        for slot in self.own_slots:
            slot.of(shared.weights).copy_(slot.of(shared.state.master))

    def tick(self, seconds: float) -> None:
        """Advances the clock by rank 0's measurement; a pause counts as at most a minute."""
        if self.rank == 0:
            self.shared.plan_progress[0] = min(seconds, 60.0)
        self.shared.barrier.wait()
        self.clock.seconds += float(self.shared.plan_progress[0])
        self.shared.barrier.wait()

    def report(self, bar: tqdm[Any], loss: float) -> None:
        """Moves the progress bar; every few minutes measures the held-out loss and saves."""
        if self.clock.step % 10 == 0:
            bar.set_postfix_str(f"step {self.clock.step} loss {loss:.3f}", refresh=False)
        bar.update(100 * self.plan.progress(self.clock) - bar.n)
        if self.clock.seconds - self.saved > 60 * self.plan.save_minutes:
            self.saved = self.clock.seconds
            self.save_progress(loss)

    @torch.no_grad()
    def heldout(self) -> float:
        """Mean held-out loss in nats per token; the workers share the rows."""
        shared, total = self.shared, 0.0
        for number in shared.claim(len(self.checks)):
            total += float(self.bound.loss(self.checks[number : number + 1].to(self.device)))
        shared.losses[self.rank] = total / len(self.checks)
        shared.barrier.wait()
        mean = float(shared.losses.sum())
        if self.rank == 0:
            shared.claimed.value = 0
        shared.barrier.wait()
        return mean

    def save_progress(self, loss: float | None = None) -> None:
        """Logs the held-out loss and saves a checkpoint."""
        heldout = self.heldout()
        if self.rank == 0:
            line = {**vars(self.clock), "loss": loss, "heldout": heldout, "wall": time.time()}
            with (self.out / "log.jsonl").open("a") as file:
                file.write(json.dumps(line) + "\n")
            save_checkpoint(self.out / "checkpoint.safetensors", self.shared.state, self.clock)
            save_weights(self.shared.state, self.slots, self.out / "weights.safetensors")
