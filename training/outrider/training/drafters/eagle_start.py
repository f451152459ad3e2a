"""Where an EAGLE-3 head begins to train: maps of least squares to the target's next last state, in closed form.

A head that begins with random weights needs more answers than a CPU writes in days. This one begins with linear maps of
the target's states, of the next token's embedding and of the head's own last state, and with a gated block. The block's
inner rows are differences of its inputs, its outer rows are solved for (Bolager et al. 2023, arXiv 2306.16830). In
attention each row sees little but itself, since queries and keys are the same random projection.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import torch
from outrider.engine.speculation.heads.shape import EagleShape
from outrider.training.drafters.errors import TrainingError
from outrider.training.drafters.learners import Read, Sequence, Told
from outrider.training.drafters.teacher import Teacher
from torch import Tensor
from torch.nn import functional

_SKIPPED = 4
"""First rows of a sequence: their states are extreme and always the same (attention sinks, arXiv 2309.17453)."""
_DAMPING = 3e-3
_STEPS = 2
"""Steps that the block is solved for; the second stands for those behind it."""
_LATER = 0.7
"""Weight of a row of the second step."""
_SHARE = 0.8
"""Of the map of the head's own state. All of it would take back what the first step needs."""
_INNER = 1.5
"""Root mean square of the block's inner values."""
_SELF_SCORE = 24.0
"""Score of a row with itself."""
_SAMPLE = 32
"""Sequences whose rows tell sizes and directions."""


class Moments:
    """Sums of products of inputs and outputs, from which a linear map between them follows.

    Args:
        inputs: width of the inputs.
        outputs: width of the outputs.
        device: where the sums are.
    """

    def __init__(self, inputs: int, outputs: int, device: torch.device) -> None:
        self._squares = torch.zeros(inputs, inputs, device=device)
        self._products = torch.zeros(inputs, outputs, device=device)

    def add(self, inputs: Tensor, outputs: Tensor, weight: float = 1.0) -> None:
        """Counts rows [n, inputs] and [n, outputs]."""
        self._squares.addmm_(inputs.mT, inputs, alpha=weight)
        self._products.addmm_(inputs.mT, outputs, alpha=weight)

    def solve(self) -> Tensor:
        """The map [inputs, outputs] with the least squared error, damped in proportion to each input's square."""
        scale = self._squares.diagonal().clamp(min=1e-6).sqrt()[:, None]
        square = self._squares / scale / scale.mT
        square.diagonal().add_(_DAMPING)
        return torch.cholesky_solve(self._products / scale, torch.linalg.cholesky(square)) / scale


class Start:
    """Solves for a head.

    Args:
        shape: of the head, with as many heads of keys as of queries.
        teacher: embeds tokens.
        read: goes through the sequences to learn from.
        watch: is told the passes that are done, and all.
        seed: of the random directions.

    Attributes:
        scale: float32 [layers * hidden_size], root mean square of each element of the target's states. `tensors` has
            ``fc.weight`` for states that are divided by it.
    """

    def __init__(self, shape: EagleShape, teacher: Teacher, read: Read, watch: Told, seed: int) -> None:
        self._shape, self._teacher, self._read, self._watch = shape, teacher, read, watch
        self._dice, self._device = torch.Generator().manual_seed(seed), teacher.output.device
        sample = [each for each in islice(read(), _SAMPLE) if len(each.last) > _SKIPPED + 1]
        if not sample:
            raise TrainingError(f"the answers are too short to learn from: all end before token {_SKIPPED + 2}")
        states = torch.cat([each.states[_SKIPPED:].flatten(1) for each in sample])
        last = torch.cat([each.last[_SKIPPED:] for each in sample])
        self.scale, self._unit = (part.square().mean(0).clamp(min=1e-6).sqrt() for part in (states, last))
        hidden = shape.hidden_size
        self._states = torch.zeros(states.shape[-1], hidden, device=self._device)
        self._embedded, self._own = (torch.zeros(hidden, hidden, device=self._device) for _ in range(2))
        self._sample = sample
        self._inner: tuple[Tensor, Tensor] | None = None
        self._outer = torch.zeros(shape.intermediate_size, hidden, device=self._device)

    def tensors(self) -> dict[str, Tensor]:
        """Tensors of the head by published name; those that are left out stay as drawn."""
        passes = (
            self._fit_states,
            self._fit_block,
            self._fit_own,
            self._refit_states,
            self._refit_states,
            self._fit_block,
        )
        for number, each in enumerate(passes):
            self._watch(number, len(passes))
            each()
        self._watch(len(passes), len(passes))
        assert self._inner is not None
        gate, up = self._inner
        mlp = {"gate_proj": gate, "up_proj": up, "down_proj": self._outer.mT}
        found = {f"layers.0.mlp.{name}.weight": tensor for name, tensor in mlp.items()}
        found |= {f"layers.0.self_attn.{name}_proj.weight": tensor for name, tensor in self._attention().items()}
        for name, size in self._shape.sizes().items():  # further layers begin by passing their input on
            if name not in found and name.endswith(("o_proj.weight", "down_proj.weight")):
                found[name] = torch.zeros(size)
        return found | {"norm.weight": self._unit, "fc.weight": self._states.mT}

    def _fit_states(self) -> None:
        """Solves for the first step without a block."""
        hidden = self._shape.hidden_size
        moments = Moments(hidden + len(self.scale), hidden, self._device)
        for sequence in self._read():
            states, embedded, truth = self._ends(sequence)
            moments.add(torch.cat([embedded, states], dim=-1), truth)
        solved = moments.solve()
        self._embedded, self._states = solved[:hidden], solved[hidden:]

    def _fit_block(self) -> None:
        """Solves for the block: of the first step, or of all once there is a map of the head's own state."""
        if self._inner is None:
            self._inner = self._directions(), self._directions()
        steps = _STEPS if self._own.any() else 1
        moments = Moments(self._shape.intermediate_size, self._shape.hidden_size, self._device)
        for sequence in self._read():
            for step, (_, stream, truth) in enumerate(self._steps(sequence, steps)):
                moments.add(self._gated(stream), truth - stream, _LATER**step)
        self._outer = moments.solve()

    def _fit_own(self) -> None:
        """Solves for the map of the head's own state: what the second step lacks."""
        moments = Moments(self._shape.hidden_size, self._shape.hidden_size, self._device)
        for sequence in self._read():
            _, (before, stream, truth) = self._steps(sequence, 2)
            moments.add(self._normed(before), truth - stream)
        self._own = _SHARE * moments.solve()

    def _refit_states(self) -> None:
        """Solves again for the map of the target's states: the first step has that of the head's own state too."""
        moments = Moments(len(self.scale), self._shape.hidden_size, self._device)
        for sequence in self._read():
            states, embedded, truth = self._ends(sequence)
            moments.add(states, truth - embedded @ self._embedded - self._normed(states @ self._states) @ self._own)
        self._states = moments.solve()

    def _ends(self, sequence: Sequence) -> tuple[Tensor, Tensor, Tensor]:
        """States, embeddings and the true next last states of the first step's rows."""
        states = sequence.states[_SKIPPED:-1].flatten(1) / self.scale
        embedded = self._normed(self._teacher.embed(sequence.ids[_SKIPPED + 1 : -1]))
        return states, embedded, sequence.last[_SKIPPED + 1 :] / self._unit

    def _steps(self, sequence: Sequence, steps: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """By step, of each row: the state that it begins with, the stream before the block, and the truth."""
        states, embedded, truth = self._ends(sequence)
        before = states @ self._states
        for step in range(steps):
            before = before[: max(len(truth) - step, 0)]
            stream = before + embedded[step:] @ self._embedded + self._normed(before) @ self._own
            yield before, stream, truth[step:]
            before = stream + self._gated(stream) @ self._outer if self._inner else stream

    def _gated(self, stream: Tensor) -> Tensor:
        assert self._inner is not None
        rows = self._normed(stream)
        return functional.silu(rows @ self._inner[0].mT) * (rows @ self._inner[1].mT)

    def _directions(self) -> Tensor:
        """Inner rows of the block [intermediate_size, hidden_size]: differences of its inputs, of one size."""
        rows = torch.cat([self._normed(next(self._steps(each, 1))[1]) for each in self._sample])
        pairs = torch.randint(len(rows), (2, 4 * self._shape.intermediate_size), generator=self._dice)
        apart = rows[pairs[0].to(self._device)] - rows[pairs[1].to(self._device)]
        length = apart.norm(dim=-1)
        alike = length < 0.1 * length.median()  # beginnings are often the same
        apart = apart[alike.long().argsort(stable=True)[: self._shape.intermediate_size]]
        return apart * (_INNER / (rows[::4] @ apart.mT).square().mean(0).clamp(min=1e-6).sqrt()[:, None])

    def _attention(self) -> dict[str, Tensor]:
        """Projections of queries and keys, by which rows see themselves; the maps through values and outputs."""
        shape, hidden = self._shape, self._shape.hidden_size
        width = shape.heads * shape.head_dim
        left, sizes, right = torch.linalg.svd(torch.cat([self._embedded, self._own]), full_matrices=False)
        value, output = torch.zeros(width, 2 * hidden), torch.zeros(hidden, width)
        rank = min(width, hidden)
        value[:rank] = (left * sizes.sqrt()).mT[:rank]
        output[:, :rank] = (right.mT * sizes.sqrt())[:, :rank]
        seen = [(self._ends(each)[1], next(self._steps(each, 1))[0]) for each in self._sample]
        rows = torch.cat([torch.cat([embedded, self._normed(before)], dim=-1) for embedded, before in seen])
        sizes, axes = torch.linalg.eigh(rows.mT @ rows / len(rows))
        even = axes * sizes.clamp(min=1e-3 * float(sizes.mean())) ** -0.25 @ axes.mT
        projection = torch.randn(width, 2 * hidden, generator=self._dice).to(self._device) @ even
        wanted = _SELF_SCORE * shape.head_dim**-0.5 / (rows[::4] @ projection.mT).square().mean(0)
        projection = projection * wanted.sqrt()[:, None]
        return {"q": projection, "k": projection.clone(), "v": value, "o": output}

    def _normed(self, rows: Tensor) -> Tensor:
        return functional.rms_norm(rows, rows.shape[-1:], eps=self._shape.norm_eps)
