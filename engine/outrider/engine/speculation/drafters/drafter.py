"""Drafters: plug-ins that guess how sequences continue. The plug-in group is `outrider.drafters`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch
from outrider.engine.models.config import ModelConfig
from outrider.engine.sampling import Sampling
from outrider.engine.speculation.trees.price import StepCosts
from outrider.engine.speculation.trees.tree import DraftTree
from outrider.engine.store import Shipped
from outrider.kernels.linear import Linear
from outrider.native.decoder import NativeDecoder
from torch import Tensor


class DrafterError(ValueError):
    """A drafter cannot serve as configured; the message is one sentence for the operator."""


class Target(Protocol):
    """The part of the target that a local drafter may use."""

    config: ModelConfig
    device: torch.device
    dtype: torch.dtype

    @property
    def compiled(self) -> NativeDecoder | None:
        """The compiled decoder that runs the target's steps; None if steps run otherwise."""
        ...

    def logits(self, hidden: Tensor) -> Tensor:
        """Float32 [n, vocab_size] of rows [n, hidden_size] after the last norm."""
        ...

    def embed(self, ids: Tensor) -> Tensor:
        """Float32 [n, hidden_size] that enters the first layer for int64 [n] ids."""
        ...

    def beside(self, weight: Tensor, quantization: str | None = None) -> Linear:
        """The quickest form of a weight [out_features, in_features] of the drafter's, to use between steps.

        With ``quantization``, ``int8`` or ``int4``, on the compiled decoder, rounded to so many bits.
        """
        ...

    def guessing_output(self, quantization: str | None) -> Callable[[Tensor], Tensor]:
        """`logits`, on the compiled decoder by a copy in fewer bits where it is quicker."""
        ...


@dataclass(frozen=True, slots=True)
class Traits:
    """What a drafter states of itself. The defaults are those of a drafter that is quick and takes tokens only.

    Attributes:
        target: whether the drafter needs the target itself, its embedding or its output layer: it then runs in the
            verifier only.
        layers: the target's states that the drafter needs of each decided token, ascending. Of a target with n layers,
            0 to n - 1 are the residual stream that enters the layer, counted from 0, as EAGLE-3 counts; n is the stream
            that enters the last norm, n + 1 what leaves it.
        whole: whether the states are needed from the first token of a prompt on. A sequence with such a drafter takes
            no pages of other sequences, since nothing computes the states of those.
        travels: whether the states may cross the network, so that the drafter may run in a proposer.
        slow: whether steps wait for the drafter so long that it is asked last, where the other guesses run out.
        rests: whether the drafter leaves out sequences that `Drafter.rest` names.
        auto: whether ``auto`` in an operator's list of drafters includes the drafter; one with a ``shipped`` model only
            on a CPU, beside the shipped target or with an option ``model``.
        named: whether ``auto`` includes the drafter only where the operator's options name it.
        shipped: kind of the shipped model that the drafter has beside the shipped target.
        predicted: whether the drafter guesses only for requests with a prediction. Predictions do not leave the
            verifier, so the drafter runs there.
    """

    target: bool = False
    layers: tuple[int, ...] = ()
    whole: bool = True
    travels: bool = False
    slow: bool = False
    rests: bool = False
    auto: bool = False
    named: bool = False
    shipped: Shipped | None = None
    predicted: bool = False

    def token_bytes(self, hidden_size: int) -> int:
        """Bytes of the states of a token on the network, in bfloat16."""
        return 2 * len(self.layers) * hidden_size


@dataclass(frozen=True, slots=True)
class DrafterContext:
    """The arguments of a drafter. A plug-in is a callable that takes a context and returns a `Drafter`.

    Attributes:
        vocabulary: fingerprint of the target's vocabulary.
        vocabulary_size: upper bound of token ids.
        context_length: longest sequence of the target, in tokens.
        model: directory of the drafter's own model; None without one.
        device: device of the drafter's model.
        dtype: dtype of the model's weights: auto, float32, bfloat16 or float16.
        options: the operator's settings for this drafter; an unknown one is a `DrafterError`.
        target: the target; None for a drafter in another process.
        config: the target's configuration; None where it is not known.
    """

    vocabulary: str
    vocabulary_size: int
    context_length: int
    model: Path | None = None
    device: str = "cpu"
    dtype: str = "auto"
    options: Mapping[str, Any] = field(default_factory=dict)
    target: Target | None = None
    config: ModelConfig | None = None

    def needed_target(self, name: str) -> Target:
        """The target, for the drafter ``name`` that cannot do without; `DrafterError` in another process."""
        if self.target is None:
            raise DrafterError(f"the {name} drafter needs the target itself: it runs in the verifier only")
        return self.target


@dataclass(frozen=True, slots=True)
class Opening:
    """A sequence to guess at.

    Attributes:
        tokens: prompt and answer so far.
        sampling: the request's sampling parameters; the seed fixes the dice.
        max_nodes: most nodes of a tree.
        tenant: tenant of the request; guesses for one tenant may not depend on another tenant's text.
        prompt: number of ``tokens`` that are the prompt.
        proposes: whether guesses have to be drawn, with proposals in their trees (see
            `outrider.engine.speculation.trees.proposals`); other guesses are then ignored.
        replacement: whether guesses have to be drawn with replacement.
        prediction: token ids of the text that the client expects for an answer; none without a prediction.
        private: whether the drafter may keep nothing of the sequence for later ones, nor guess from earlier ones.
    """

    tokens: Sequence[int]
    sampling: Sampling
    max_nodes: int
    tenant: str = ""
    prompt: int = 0
    proposes: bool = False
    replacement: bool = False
    prediction: Sequence[int] = ()
    private: bool = False


class Drafter(ABC):
    """Guesses for many sequences at a time, each a session.

    Guesses never change the target's answer, so a drafter may be wrong, late or silent. One thread makes all calls.
    Calls for unknown sessions are ignored. What a session needs, pages of a model included, is the drafter's own.

    Attributes:
        name: name of the drafter in requests and reports.
        context_length: longest sequence to guess for, in tokens.
        traits: what the drafter states of itself; an instance may state other ``layers`` than its class.
    """

    name: str
    context_length: int = 1 << 30
    traits: Traits = Traits()

    @abstractmethod
    def open(self, session: int, opening: Opening) -> None:
        """Starts guessing for a sequence."""

    @abstractmethod
    def draft(self) -> list[tuple[int, DraftTree]]:
        """Does one short piece of work; returns new and improved trees, none when all work is done.

        A tree may be a chain of one pass, or grow from call to call. Its confidences need not be right: the verifier
        learns how often guesses of a confidence are.
        """

    def commit(self, session: int, length: int, tokens: Sequence[int]) -> None:  # noqa: B027
        """Appends decided ``tokens`` after ``length`` tokens of prompt and answer."""

    def see(self, session: int, start: int, states: Tensor) -> None:  # noqa: B027
        """Takes the states of `Traits.layers`, float32 [tokens, layers, hidden_size], of the tokens from ``start`` on.

        The newest token has no states yet, all others get theirs once and in order: a prompt in chunks, then the
        accepted tokens of each step, after their `commit`. The first call of a session has a ``start`` above 0 where
        its first tokens had been computed before: without ``whole``, or when a proposer, or a new version of the
        drafter, takes over a sequence.
        """

    def price(self, costs: StepCosts) -> None:  # noqa: B027
        """Takes what guesses cost in the step of the next `draft`; a proposer does not know and never calls it."""

    def close(self, session: int) -> None:  # noqa: B027
        """Ends the session."""

    @property
    def lost(self) -> bool:
        """Whether guesses have lately been right no more often than chance, so that something must be misconfigured."""
        return False

    @property
    def reading(self) -> bool:
        """Whether `draft` has more of a prompt to read, although its last call returned nothing."""
        return False

    def rest(self, session: int) -> None:  # noqa: B027
        """Pauses drafting for the sequence until its next `commit`, which may come much later."""

    def forget(self, tenant: str) -> None:  # noqa: B027
        """Drops the tenant's sessions, and overwrites what was kept of them and of earlier ones."""

    def expire(self) -> None:  # noqa: B027
        """Forgets the tenants that had no session since the last call."""


def plugin_name(drafter: str) -> str:
    """The plug-in of a drafter's name, which may end with a version: ``head`` of ``head@v2``."""
    return drafter.partition("@")[0]


def traits_of(plugin: Any) -> Traits:
    """What a plug-in states of its drafter before there is one."""
    traits = getattr(plugin, "traits", None)
    return traits if isinstance(traits, Traits) else Traits()


def make_drafter(plugin: Any, name: str, context: DrafterContext) -> Drafter:
    """The drafter of the plug-in ``name``; `DrafterError` if it cannot serve in this process or for this target."""
    if traits_of(plugin).target:
        context.needed_target(name)
    if traits_of(plugin).predicted and context.target is None:
        raise DrafterError(f"the {name} drafter needs predictions of requests: it runs in the verifier only")
    drafter = plugin(context)
    if not isinstance(drafter, Drafter):
        raise DrafterError(f"the {name} drafter is a {type(drafter).__name__}; it must be a Drafter")
    traits = drafter.traits
    if traits.layers:
        if context.target is None and not traits.travels:
            raise DrafterError(f"the {name} drafter's states may not cross the network: it runs in the verifier only")
        _check_layers(name, traits.layers, context.config)
    return drafter


def _check_layers(name: str, layers: Sequence[int], config: ModelConfig | None) -> None:
    if config is None:
        raise DrafterError(f"the {name} drafter needs states of a target, whose config.json is not there")
    last = config.layers + 1
    if list(layers) != sorted(set(layers)) or not 0 <= layers[0] <= layers[-1] <= last:
        raise DrafterError(f"the {name} drafter's layers are {list(layers)}; they must ascend from 0 on, up to {last}")
