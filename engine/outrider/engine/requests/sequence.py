"""A request and the state of the sequence that answers it."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from math import inf
from typing import Any, Literal

from outrider.engine.logits.edits import History, Rule, edits
from outrider.engine.logits.grammar import Grammar, Guide
from outrider.engine.models.pooling import Pooling
from outrider.engine.requests.output import Finish, Usage
from outrider.engine.requests.parameters import SamplingParams, Speculation
from outrider.engine.sampling import Dice, Sampling
from outrider.engine.speculation import DraftTree
from outrider.engine.speculation.drafters.drafter import plugin_name
from outrider.engine.thoughts.guide import Budget, ThoughtGuide
from outrider.engine.thoughts.tracker import Tracker
from torch import Tensor

PageSource = Literal["kvcache", "peer"]
"""Who may send pages: a KV cache, or another verifier."""


@dataclass(frozen=True, slots=True)
class Request:
    """A checked request.

    Attributes:
        prompt: token ids, at least one.
        emitted: tokens that another engine has already generated.
        prediction: token ids of the text that the client expects for an answer; they change the speed alone.
        max_tokens: most generated tokens, ``emitted`` included; 0 only to echo or to embed the prompt.
        stop_ids: ids that end the text, with the model's end-of-text ids unless the request ignores them.
        parameters: the parameters as the client gave them. ``sampling``, ``max_tokens``, ``stop_ids`` and ``grammar``
            are made of them and of the model, and hold where they differ.
        speculation: drafters that may guess, how much, and whether frames hold the verified guesses.
        grammar: grammar of the answer.
        thinking: follows the thought in front of the answer; None takes all text for the answer's.
        priority: higher priorities run before lower ones.
        weight: the tenant's share relative to other tenants; the tenant's tokens are divided by it.
        first_by: deadline of the first token, in seconds on the scheduler's clock.
        end_by: deadline of the last token, in seconds on the scheduler's clock.
        prefill_only: whether another verifier wants only the pages of the prompt (prefill/decode disaggregation).
        filtered: whether a gateway filters the answer before clients read it.
        residency: tags of the services that may get the tokens or their pages; None for all.
        trace: what the telemetry keeps with the request; None for nothing.
        cache_salt: only requests of the tenant with the same salt share pages.
        pooling: how the states of the prompt become its embedding, which is then all that the request wants.
    """

    id: str
    tenant: str
    prompt: list[int]
    sampling: Sampling
    max_tokens: int
    emitted: list[int] = field(default_factory=list)
    stop_ids: frozenset[int] = frozenset()
    parameters: SamplingParams = field(default_factory=SamplingParams)
    speculation: Speculation = field(default_factory=Speculation)
    grammar: Grammar | None = None
    thinking: Tracker | None = None
    priority: int = 0
    weight: float = 1.0
    first_by: float = inf
    end_by: float = inf
    prefill_only: bool = False
    filtered: bool = False
    residency: frozenset[str] | None = None
    trace: Any = None
    prediction: list[int] = field(default_factory=list)
    cache_salt: str = ""
    pooling: Pooling | None = None

    @property
    def speculates(self) -> bool:
        """Whether any drafter may guess."""
        return not self.speculation.off

    @property
    def drafters(self) -> frozenset[str] | None:
        """Drafters that may guess; None for all, an empty set for none."""
        return (frozenset(self.speculation.drafters) or None) if self.speculates else frozenset()

    def admits(self, drafter: str) -> bool:
        """Whether ``drafter`` may guess, in any version."""
        named = self.speculation.drafters
        return self.speculates and (not named or plugin_name(drafter) in named)


@dataclass(slots=True, eq=False)
class Sequence:
    """A request inside the engine, with its tokens and pages.

    Attributes:
        number: names the sequence to drafters; never used twice.
        tokens: prompt and generated tokens.
        cached: number of leading tokens with keys and values in ``pages``; while decoding, all but the last.
        pages: page ids in order; an array, which a step copies whole.
        hashes: chain hashes of the leading full pages that have been computed so far.
        published: number of leading pages offered to other sequences.
        trees: trees of guesses behind the current end or an earlier one, by source.
        guide: what the grammar allows next; None without a grammar.
        rules: rules that edit the logits.
        echoed: number of leading tokens of the prompt that no frame has to hold any more.
        lossy: whether a rule of acceptance that changes the answer's distribution applies.
        level: priority at the last admission, raised by waiting.
        admitted: whether the sequence has ever run; stays true after a preemption.
        submitted_at: when the sequence was submitted, in seconds on the scheduler's clock.
        waiting_since: when the sequence was last put into the queue, on the same clock.
        admitted_at: when the sequence first ran, on the same clock; 0.0 before that.
        first_at: when the first token was decided, on the same clock; 0.0 before that.
        fetched: tokens of pages that arrived for the sequence, by where they came from.
        verified: number of steps that verified guesses and accepted as many as the index says.
        predicted: accepted and rejected guesses of the request's prediction.
        stated: number of leading tokens whose hidden states drafters have got.
        whole: whether drafters need the hidden states of all tokens.
        pooled: states of the tokens so far as the request pools them, float64 [hidden_size].
    """

    request: Request
    number: int
    tokens: list[int]
    dice: Dice | None
    cached: int = 0
    pages: array[int] = field(default_factory=lambda: array("i"))
    hashes: list[bytes] = field(default_factory=list)
    published: int = 0
    reused: int = 0
    trees: dict[str, DraftTree] = field(default_factory=dict)
    steps: int = 0
    accepted: int = 0
    rejected: int = 0
    finish: Finish | None = None
    guide: Guide | ThoughtGuide | None = None
    rules: list[Rule] = field(default_factory=list)
    echoed: int = 0
    lossy: bool = False
    level: int = 0
    admitted: bool = False
    submitted_at: float = 0.0
    waiting_since: float = 0.0
    admitted_at: float = 0.0
    first_at: float = 0.0
    fetched: dict[PageSource, int] = field(default_factory=dict)
    verified: list[int] = field(default_factory=list)
    predicted: tuple[int, int] = (0, 0)
    stated: int = 0
    whole: bool = False
    pooled: Tensor | None = None

    @classmethod
    def start(cls, request: Request, number: int, dice: Dice | None) -> Sequence:
        """The sequence of a new request, behind its prompt and emitted tokens, with the rules that edit its logits."""
        tokens, length = request.prompt + request.emitted, len(request.prompt)
        sequence = cls(request, number, tokens, dice, level=request.priority)
        sequence.echoed = 0 if request.parameters.echo and not request.emitted else length
        if edits(request.parameters):
            sequence.rules.append(History(request.parameters, tokens, length, request.stop_ids))
        if request.grammar is not None:
            sequence.guide = _guide(request.grammar, request, tokens)
            sequence.rules.append(sequence.guide)
        elif request.thinking is not None and request.thinking.thought.budget is not None:
            sequence.rules.append(Budget(request.thinking, tokens, length))
        return sequence

    @property
    def scoring(self) -> bool:
        """Whether frames still need log-probabilities of the prompt."""
        return self.request.parameters.logprobs is not None and self.echoed < len(self.request.prompt)

    @property
    def runs_all(self) -> bool:
        """Whether every token of the prompt must run, though pages hold it."""
        return self.scoring or self.request.pooling == "mean"

    @property
    def generated(self) -> int:
        """Tokens generated so far."""
        return len(self.tokens) - len(self.request.prompt)

    @property
    def due(self) -> float:
        """The next deadline, in seconds on the scheduler's clock."""
        return min(self.request.end_by, inf if self.generated else self.request.first_by)

    @property
    def pending(self) -> int:
        """Number of tokens without keys and values."""
        return len(self.tokens) - self.cached

    @property
    def ready(self) -> bool:
        """Whether the next step would not have to wait for this sequence's grammar."""
        return self.guide is None or self.guide.ready()

    @property
    def left(self) -> int:
        """Number of tokens that may still be generated."""
        return self.request.max_tokens - self.generated

    def note_verified(self, accepted: int, depth: int) -> None:
        """Counts a step that accepted ``accepted`` guesses of a tree of this ``depth``."""
        if len(self.verified) <= depth:
            self.verified += [0] * (depth + 1 - len(self.verified))
        self.verified[accepted] += 1

    def note_predicted(self, accepted: int, verified: int) -> None:
        """Counts the guesses of the prediction in a step that verified ``verified`` and accepted ``accepted``."""
        right, wrong = self.predicted
        self.predicted = right + accepted, wrong + verified - accepted

    def prefix_sources(self) -> dict[str, int]:
        """The prompt's tokens by where their pages came from: verifier, kvcache, peer, or computed."""
        sources, left = {"computed": len(self.request.prompt) - self.reused}, self.reused
        for source, tokens in self.fetched.items():
            sources[source] = min(tokens, left)
            left -= sources[source]
        return sources | {"verifier": left}

    def usage(self) -> Usage:
        """Tokens, steps and guesses of the request so far."""
        prompt, emitted = len(self.request.prompt), len(self.request.emitted)
        return Usage(
            prompt,
            self.generated,
            self.reused,
            self.accepted,
            self.rejected,
            self.steps,
            self.lossy,
            emitted,
            self.verified,
            self.predicted if self.request.prediction else None,
        )


def _guide(grammar: Grammar, request: Request, tokens: list[int]) -> Guide | ThoughtGuide:
    """What the grammar allows along ``tokens``, behind the thought if there may be one."""
    length = len(request.prompt)
    if request.thinking is None:
        return grammar.guide(tokens, length, request.stop_ids)
    return ThoughtGuide(request.thinking, grammar, tokens, length, request.stop_ids)
