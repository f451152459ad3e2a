"""A request and the state of the sequence that answers it."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf

from outrider.models.sampling import Dice, Sampling
from outrider.models.speculation import DraftTree
from outrider.verifier.logits.edits import History, Rule, edits
from outrider.verifier.logits.grammar import Grammar, Guide
from outrider.wire.frames import Finish, Usage
from outrider.wire.sampling import SamplingParameters, Speculation


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked for, checked.

    Attributes:
        prompt: token ids, at least one.
        emitted: tokens that another replica has already generated.
        max_tokens: most generated tokens, those emitted included; 0 only where the prompt is echoed, or only computed.
        stop_ids: ids that end the text, the model's own end-of-text ids included unless they are ignored.
        asked: the parameters as they were asked for. ``sampling``, ``max_tokens``, ``stop_ids`` and ``grammar`` are
            made of them and of the model, and hold where they differ.
        speculation: who may guess, how much, and whether that is told.
        grammar: what the answer has to be.
        priority: whose turn comes first; higher ones before lower ones.
        weight: the tenant's share beside other tenants': what it is served counts so many times less.
        first_by: when its first token has to be there, on the scheduler's clock.
        end_by: when its last one has to be.
        handed: whether another verifier wants the pages of its prompt, and nobody its answer.
    """

    id: str
    tenant: str
    prompt: list[int]
    sampling: Sampling
    max_tokens: int
    emitted: list[int] = field(default_factory=list)
    stop_ids: frozenset[int] = frozenset()
    asked: SamplingParameters = field(default_factory=SamplingParameters)
    speculation: Speculation = field(default_factory=Speculation)
    grammar: Grammar | None = None
    priority: int = 0
    weight: float = 1.0
    first_by: float = inf
    end_by: float = inf
    handed: bool = False

    @property
    def speculates(self) -> bool:
        """Whether anyone may guess."""
        return not self.speculation.off

    @property
    def drafters(self) -> frozenset[str] | None:
        """Who may guess; None is anyone, an empty set is nobody."""
        return (frozenset(self.speculation.drafters) or None) if self.speculates else frozenset()

    def admits(self, drafter: str) -> bool:
        """Whether ``drafter`` may guess."""
        named = self.speculation.drafters
        return self.speculates and (not named or drafter in named)


@dataclass(slots=True, eq=False)
class Sequence:
    """A request on its way.

    Attributes:
        number: names the sequence to drafters; never used twice.
        tokens: prompt and generated tokens.
        cached: leading tokens whose keys and values are in ``pages``; while decoding, all but the last.
        pages: page ids in order.
        hashes: chain hashes of the leading full pages, as far as they were needed.
        published: leading pages offered to other sequences.
        trees: guesses that hang from the current end, or from where it was, by where they came from.
        guide: what the grammar allows next, where the request has one.
        rules: what edits its logits.
        echoed: leading tokens of the prompt that need no telling any more.
        lossy: whether its guesses are accepted by a rule that changes the answer's law.
        level: its priority, with what that had gained by waiting when the sequence was last admitted.
        admitted: whether it has run, be it preempted since.
    """

    request: Request
    number: int
    tokens: list[int]
    dice: Dice | None
    cached: int = 0
    pages: list[int] = field(default_factory=list)
    hashes: list[bytes] = field(default_factory=list)
    published: int = 0
    reused: int = 0
    trees: dict[str, DraftTree] = field(default_factory=dict)
    steps: int = 0
    accepted: int = 0
    rejected: int = 0
    finish: Finish | None = None
    guide: Guide | None = None
    rules: list[Rule] = field(default_factory=list)
    echoed: int = 0
    lossy: bool = False
    level: int = 0
    admitted: bool = False

    @classmethod
    def start(cls, request: Request, number: int, dice: Dice | None) -> Sequence:
        """A request with the tokens that another replica has generated, and what edits its logits."""
        tokens, length = request.prompt + request.emitted, len(request.prompt)
        made = cls(request, number, tokens, dice, level=request.priority)
        made.echoed = 0 if request.asked.echo and not request.emitted else length
        if edits(request.asked):
            made.rules.append(History(request.asked, tokens, length, request.stop_ids))
        if request.grammar is not None:
            made.guide = request.grammar.guide(tokens, length, request.stop_ids)
            made.rules.append(made.guide)
        return made

    @property
    def scoring(self) -> bool:
        """Whether log-probabilities of the prompt are still to be told, so that each of its tokens must be run."""
        return self.request.asked.logprobs is not None and self.echoed < len(self.request.prompt)

    @property
    def generated(self) -> int:
        """Tokens generated so far."""
        return len(self.tokens) - len(self.request.prompt)

    @property
    def due(self) -> float:
        """When its next deadline passes."""
        return min(self.request.end_by, inf if self.generated else self.request.first_by)

    @property
    def pending(self) -> int:
        """Tokens whose keys and values are still to be computed."""
        return len(self.tokens) - self.cached

    @property
    def left(self) -> int:
        """Tokens that may still be generated."""
        return self.request.max_tokens - self.generated

    def usage(self) -> Usage:
        """What the request has cost so far."""
        prompt, emitted = len(self.request.prompt), len(self.request.emitted)
        return Usage(prompt, self.generated, self.reused, self.accepted, self.rejected, self.steps, self.lossy, emitted)
