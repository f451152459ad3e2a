"""The drafter of heads that were trained for the target: EAGLE-3, DFlash, DSpark.

It reads whatever of these its directory holds (`outrider.engine.speculation.heads.layout`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from outrider.engine.errors import ModelError
from outrider.engine.logs import get_logger
from outrider.engine.sampling import Dice
from outrider.engine.speculation.drafters.drafter import (
    Drafter,
    DrafterContext,
    DrafterError,
    Opening,
    Target,
    Traits,
)
from outrider.engine.speculation.drafters.trained.alarm import Alarm
from outrider.engine.speculation.drafters.trained.block_trees import BlockTrees
from outrider.engine.speculation.drafters.trained.eagle_trees import CompiledEagleTrees, EagleTrees
from outrider.engine.speculation.drafters.trained.head_trees import Growth, HeadTrees
from outrider.engine.speculation.drafters.trained.key_cache import KeyCache
from outrider.engine.speculation.drafters.trained.session import Session
from outrider.engine.speculation.drafters.weights import quantization_of
from outrider.engine.speculation.heads.block import BlockHead
from outrider.engine.speculation.heads.compiled import CompiledEagle, is_compiled
from outrider.engine.speculation.heads.decoder import Rows
from outrider.engine.speculation.heads.eagle import EagleHead
from outrider.engine.speculation.heads.files import load_head
from outrider.engine.speculation.trees.price import StepCosts
from outrider.engine.speculation.trees.tree import DraftTree
from outrider.kernels.linear import pack
from torch import Tensor

_OPTIONS = ("model", "layers", "quantization", "whole", *Growth.__dataclass_fields__)
_READ_ROWS = 256
"""States of prompts that one call of `draft` reads."""

_log = get_logger("speculation")


class HeadDrafter(Drafter):
    """Makes a tree for each sequence and step.

    Options: ``model``; ``layers``, the target's states in place of those of config.json; ``quantization``, of weights
    beside a compiled target (see `quantization_of`); ``whole``, see `Traits`; and the fields of `Growth`.

    Attributes:
        alarm: counts how often first guesses are right.
        trees: grows the trees.
    """

    name = "head"
    traits = Traits(travels=True, slow=True, rests=True, auto=True, named=True)

    def __init__(self, context: DrafterContext) -> None:
        options = dict(context.options)
        layers, whole = options.pop("layers", None), options.pop("whole", False)
        quantization = quantization_of(options, None if context.target is None else "int4")
        if context.target is None and quantization is not None:
            raise DrafterError("the head drafter's quantization needs the target itself: it is for the verifier only")
        if not isinstance(whole, bool) or not (layers is None or _are_layers(layers)):
            raise DrafterError(
                "the head drafter's option whole must be true or false, and layers a list of whole numbers"
            )
        growth = _growth(options)
        if context.model is None or context.config is None:
            raise DrafterError("the head drafter needs a head: give its directory as the option model")
        target, dtype = context.target, torch.float32 if context.device == "cpu" else torch.bfloat16
        try:
            head, layout = load_head(
                context.model,
                context.config,
                embed=None if target is None else _embedding(target),
                output=None if target is None else target.guessing_output(quantization),
                layers=None if layers is None else tuple(layers),
                dtype=dtype,
                device=context.device,
            )
        except ModelError as error:
            raise DrafterError(str(error)) from None
        compiled = None if target is None else _compiled(head, target, quantization, context.context_length)
        head.pack(partial(pack, few_rows=True) if target is None else partial(target.beside, quantization=quantization))
        if not (head.shape.own_embedding and head.shape.own_output):
            context.needed_target(f"{layout.kind} {self.name}")
        self.head, self.context_length = head, context.context_length
        self.traits = replace(self.traits, layers=head.shape.target_layers, whole=whole)
        self.trees: HeadTrees
        if isinstance(head, EagleHead) and compiled is not None:
            self.trees = CompiledEagleTrees(head, compiled, growth, context.context_length)
        elif isinstance(head, EagleHead):
            self.trees = EagleTrees(head, growth, context.context_length)
        else:
            self.trees = BlockTrees(head, growth, context.context_length)
        self._growth, self._vocabulary = growth, context.vocabulary_size
        self._sessions: dict[int, Session] = {}
        named = f"{layout.kind}, as {'speculators lays it out' if layout.speculators else 'its authors lay it out'}"
        self.alarm = Alarm(f"{context.model} ({named})")
        _log.info(
            "head loaded",
            head=named,
            model=str(context.model),
            layers=list(head.shape.target_layers),
            ids=head.shape.draft_vocabulary,
            own_embedding=head.shape.own_embedding,
            own_output=head.shape.own_output,
            quantization=quantization or "none",
        )

    def open(self, session: int, opening: Opening) -> None:
        """Starts guessing for a sequence; the first tree follows the states of its prompt."""
        self.close(session)
        sampling = opening.sampling
        if opening.proposes and not sampling.greedy:
            return  # its guesses are not drawn
        norm = self.head.tensors["norm.weight"]
        dice = None if sampling.greedy else Dice(sampling.seed, self._vocabulary, norm.device)
        cache = KeyCache(self.head.shape, norm.dtype, norm.device)
        self._sessions[session] = Session(session, list(opening.tokens), sampling, dice, opening.max_nodes, cache)

    def commit(self, session: int, length: int, tokens: Sequence[int]) -> None:
        """Appends decided tokens."""
        state = self._sessions.get(session)
        if state is None or not tokens:
            return
        if length != len(state.tokens):
            self.close(session)
            return
        if state.top is not None:
            self.alarm.count(state.top == tokens[0])
        state.commit(tokens)

    @torch.inference_mode()
    def see(self, session: int, start: int, states: Tensor) -> None:
        """Keeps the states for the next `draft`."""
        state = self._sessions.get(session)
        if state is not None and not state.see(
            start, states.to(self.head.tensors["norm.weight"].device), self._project
        ):
            self.close(session)

    def _project(self, states: Tensor) -> Tensor:
        return self.trees.project(states.float())

    def rest(self, session: int) -> None:
        """Pauses drafting for a sequence until tokens are decided again."""
        if (state := self._sessions.get(session)) is not None:
            state.resting = True

    def price(self, costs: StepCosts) -> None:
        """Grows trees no further than guesses pay."""
        self.trees.price.costs = costs

    def close(self, session: int) -> None:
        """Forgets the sequence."""
        if (state := self._sessions.pop(session, None)) is not None:
            self.trees.close(state)

    def forget(self, tenant: str) -> None:
        """Nothing is kept of sessions that have ended."""

    @property
    def lost(self) -> bool:
        """Whether the alarm's last window was below its bound."""
        return self.alarm.lost

    @property
    def reading(self) -> bool:
        """Whether states of prompts are not read."""
        return any(session.unread for session in self._due())

    def _due(self) -> list[Session]:
        return [s for s in self._sessions.values() if s.is_due and len(s.tokens) < self.context_length]

    @torch.inference_mode()
    def draft(self) -> list[tuple[int, DraftTree]]:
        """Reads the states that came, and makes a tree for each sequence that has them all."""
        due = self._due()
        if unprojected := [session for session in due if session.states]:
            self._project_all(unprojected)
        left = max(_READ_ROWS, len(due))
        parts = []
        for session in sorted(due, key=lambda session: session.unread):
            if rows := min(session.unread, left):
                parts.append((session, session.take(rows)))
                left -= rows
        if parts:
            self.trees.read(parts)
        ready = [session for session in due if not session.unread]
        if ready:
            self.trees.grow(ready)
        return [(session.number, tree) for session in ready if (tree := self._best(session)).tokens]

    def _project_all(self, sessions: Sequence[Session]) -> None:
        """Projects the states of several sessions in one matmul."""
        rows = [torch.cat(session.states) for session in sessions]
        projected = torch.split(self._project(torch.cat(rows)), [len(own) for own in rows])
        for session, features in zip(sessions, projected, strict=True):
            session.add(features)

    def _best(self, session: Session) -> DraftTree:
        session.drafted, nodes = True, min(session.max_nodes, self._growth.nodes)
        session.top = session.tree.nodes[0].token if session.tree.nodes else None
        return session.tree.best(nodes, self._growth.least_value, len(session.tokens), self.name)


def _compiled(
    head: EagleHead | BlockHead, target: Target, quantization: str | None, context_length: int
) -> CompiledEagle | None:
    """The head's layers on the target's compiled decoder; None where there is no code for them."""
    decoder = target.compiled
    if decoder is None or isinstance(head, BlockHead) or not is_compiled(head.shape, target.dtype):
        return None
    return CompiledEagle(head, decoder, target.dtype, quantization, context_length)


def _embedding(target: Target) -> Rows:
    return lambda ids: target.embed(ids.flatten()).view(*ids.shape, -1)


def _are_layers(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(type(layer) is int for layer in value)


def _growth(options: Mapping[str, Any]) -> Growth:
    defaults = Growth()
    for name, value in options.items():
        default = getattr(defaults, name, None)
        if default is None:
            raise DrafterError(f"the head drafter's options are {', '.join(_OPTIONS)}; not {name}")
        whole = isinstance(default, int)
        if type(value) not in ((int,) if whole else (int, float)) or value < whole:
            raise DrafterError(f"the head drafter's {name} is {value!r}; it must be a number of at least {int(whole)}")
    return Growth(**options)
