"""Runs the whole recipe in stages; each stage writes to the output folder and is skipped if its result exists."""

from __future__ import annotations

import platform
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import torch
from outrider.native.share import cores
from outrider.training.drafters.medusa_learner import Heads
from outrider.training.pocket import card, corpus, data, export, quality, sampled, tokenizer, train
from outrider.training.pocket.card import HeldOutFigures
from outrider.training.pocket.checkpoint import TrainingClock, read_clock
from outrider.training.pocket.distill import DRAFT, DistillationTask
from outrider.training.pocket.medusa import MedusaTask
from outrider.training.pocket.net import TARGET, Llama, Shape
from outrider.training.pocket.tasks import NextTokenTask, Task, load
from outrider.training.pocket.train import Plan
from safetensors.torch import load_file
from tokenizers import Tokenizer


@dataclass(frozen=True)
class Recipe:
    """All inputs of the pipeline; `target` has the longest of the three budgets."""

    out: Path
    library: Path
    target: Plan
    draft: Plan
    medusa: Plan
    shape: Shape = TARGET
    draft_shape: Shape = DRAFT
    heads: int = 4
    blocks: int = 1
    library_repeats: int = 6
    measured_tokens: int = 80_000
    sampled_tokens: int = 1_700_000
    seed: int = 0


class Pipeline:
    """Runs a recipe; `out` then holds the tokenizer, streams, checkpoints and `weights/`, the files to ship."""

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe
        self.out = recipe.out
        self.weights = recipe.out / "weights"

    def run(self) -> Path:
        """Trains and exports all models; returns the folder to ship."""
        self.prepare()
        self.train()
        self.export()
        return self.weights

    @cached_property
    def corpus(self) -> corpus.Corpus:
        """The split documents."""
        documents = corpus.gather(self.recipe.library)
        if not documents.tests:
            print(f"no test suite below {self.recipe.library}: the models train on the library alone")
        return documents

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer, trained on the library at the first call."""
        folder = self.out / "tokenizer"
        if not (folder / "tokenizer.json").exists():
            trained = tokenizer.train([d.text for d in self.corpus.library], self.recipe.shape.vocab)
            tokenizer.save(trained, folder, self.recipe.shape.context)
        return Tokenizer.from_file(str(folder / "tokenizer.json"))

    def prepare(self) -> None:
        """Writes the token streams for training and measurement."""
        if (self.out / "train.bin").exists():
            return
        packed = [
            data.pack(self.tokenizer, part, self.recipe.seed) for part in (self.corpus.library, self.corpus.tests)
        ]
        data.write([data.pack(self.tokenizer, self.corpus.heldout, self.recipe.seed)], self.out / "heldout.bin")
        data.write([packed[0]] * self.recipe.library_repeats + [packed[1]], self.out / "train.bin")

    def train(self) -> None:
        """Trains the target, then the draft and the heads on it."""
        r, target = self.recipe, self.out / "target" / "weights.safetensors"
        self._train("target", NextTokenTask(r.shape), r.target)
        self._train("draft", DistillationTask(r.draft_shape, r.shape, target), r.draft, self._sampled(target))
        self._train("medusa", MedusaTask(r.shape, target, r.heads, r.blocks), r.medusa)

    def _train(self, name: str, task: Task, plan: Plan, stream: Path | None = None) -> TrainingClock:
        return train.run(task, plan, stream or self.out / "train.bin", self.out / "heldout.bin", self.out / name)

    def _sampled(self, target: Path) -> Path:
        """The draft's training stream: text sampled from the target twice, then as much training text."""
        r, mixed = self.recipe, self.out / "draft.bin"
        if not mixed.exists():
            self._export("target", target, r.shape)
            sampled_path = self.out / "sampled.bin"
            length = min(r.draft.length, r.shape.context)
            sampled.write(
                self.weights / "target", self.out / "train.bin", sampled_path, r.sampled_tokens, length, r.seed
            )
            text = data.read(sampled_path)
            data.write([text, text, data.read(self.out / "train.bin")[: 2 * len(text)]], mixed)
        return mixed

    def export(self) -> None:
        """Writes the folders to ship, the held-out list and the card."""
        r = self.recipe
        for name, shape in (("target", r.shape), ("draft", r.draft_shape)):
            self._export(name, self.out / name / "weights.safetensors", shape)
        export.heads(self.out / "medusa" / "weights.safetensors", r.blocks, r.shape, self.weights / "medusa")
        export.heldout(self.corpus, platform.python_version(), self.weights / "heldout.json")
        (self.weights / "MODEL_CARD.md").write_text(self.card())

    def _export(self, name: str, weights: Path, shape: Shape) -> None:
        end = self.tokenizer.encode(tokenizer.END).ids[0]
        export.decoder(weights, shape, self.out / "tokenizer", end, self.weights / name)

    def card(self, machine: str = "", notes: tuple[str, ...] = ()) -> str:
        """The model card, with figures measured now on the exported weights."""
        r = self.recipe
        clocks = {
            name: read_clock(self.out / name / "checkpoint.safetensors") for name in ("target", "draft", "medusa")
        }
        summary = card.TrainingSummary(
            **clocks,
            parameters={name: self._count(name) for name in clocks},
            machine=machine or self._machine(),
            python=platform.python_version(),
            notes=notes,
        )
        return card.card(self.corpus, r.library_repeats, (r.shape, r.draft_shape), summary, self.measure())

    def measure(self) -> HeldOutFigures:
        """Held-out figures of the exported weights, in float32."""
        target, draft, heads = self._exported()
        stream = data.read(self.out / "heldout.bin")
        size = sum(len(d.text.encode()) for d in self.corpus.heldout)
        short = data.rows(stream[: self.recipe.measured_tokens], min(512, self.recipe.shape.context))
        long = data.rows(stream[: self.recipe.measured_tokens], self.recipe.shape.context)
        by_position = quality.nats(target, long).mean(0)

        def bits(nats: torch.Tensor) -> float:
            return quality.bits_per_byte(float(nats.mean()), len(stream), size)

        return HeldOutFigures(
            target_bits=bits(quality.nats(target, short)),
            draft_bits=bits(quality.nats(draft, short)),
            early_bits=bits(by_position[:512]),
            late_bits=bits(by_position[512:]),
            draft=quality.draft_agreement(target, draft, short),
            draft_own=quality.draft_agreement(target, draft, self._continued_windows()),
            heads=quality.head_agreement(target, heads, short),
            runs=quality.head_runs(target, heads, short),
        )

    def _continued_windows(self) -> torch.Tensor:
        """Windows that begin with held-out text and that the target continues."""
        length, path = min(512, self.recipe.shape.context), self.out / "heldout-own.bin"
        if not path.exists():
            target, heldout = self.weights / "target", self.out / "heldout.bin"
            sampled.write(target, heldout, path, self.recipe.measured_tokens // 5, length, self.recipe.seed + 1)
        return data.rows(data.read(path), length - 1)

    def _exported(self) -> tuple[Llama, Llama, Heads]:
        r, cpu = self.recipe, torch.device("cpu")
        target = load(self.weights / "target" / "model.safetensors", r.shape, cpu, torch.float32)
        draft = load(self.weights / "draft" / "model.safetensors", r.draft_shape, cpu, torch.float32)
        heads = Heads(r.heads, r.blocks, r.shape.width)
        heads.load_state_dict(load_file(self.weights / "medusa" / "medusa_lm_head.safetensors"))
        return target, draft, heads.requires_grad_(False)

    def _count(self, name: str) -> int:
        return sum(t.numel() for t in load_file(self.out / name / "weights.safetensors").values())

    def _machine(self) -> str:
        if self.recipe.target.device == "cuda":
            return f"One {torch.cuda.get_device_name()}"
        return f"{self.recipe.target.workers} cores of an {platform.machine()} processor, no GPU"


def plans(minutes: float, device: str, workers: int, seed: int) -> tuple[Plan, Plan, Plan]:
    """Budgets of target, draft and heads: 70, 20 and 10 % of `minutes`; a GPU takes larger batches."""
    gpu = device == "cuda"
    base = Plan(
        minutes=0.7 * minutes,
        batch=16384 if gpu else 4096,
        micro=16384 if gpu else 1024,
        workers=1 if gpu else workers,
        device=device,
        seed=seed,
    )
    return (
        base,
        replace(base, minutes=0.2 * minutes, long_share=0.0),
        replace(base, minutes=0.1 * minutes, long_share=0.0),
    )


def pick_device(name: str) -> str:
    """`name`; for `auto`, the GPU if the machine has one."""
    if name != "auto":
        return name
    return "cuda" if torch.cuda.is_available() else "cpu"


def pick_workers(device: str) -> int:
    """One process for each core, at most four; one for a GPU."""
    return 1 if device == "cuda" else min(4, cores())
