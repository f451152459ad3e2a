"""The draft-model drafter: a small model grows a tree ahead of every sequence, with the target's dice."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from time import perf_counter
from typing import Any

from outrider.engine.models.draft import load_draft
from outrider.engine.speculation.drafters.drafter import Drafter, DrafterContext, DrafterError, Opening, Traits
from outrider.engine.speculation.drafters.eager_trees import EagerTrees
from outrider.engine.speculation.drafters.vocabulary import VocabularyMap
from outrider.engine.speculation.drafters.weights import quantization_of
from outrider.engine.speculation.trees.price import RoundPrice, StepCosts
from outrider.engine.speculation.trees.shape import TreeShape
from outrider.engine.speculation.trees.tree import DraftTree
from outrider.engine.text import Tokenizer
from outrider.native.drafts import MOST_CHILDREN, DraftShape, NativeDrafts


class ModelDrafter(Drafter):
    """Drafts with a small language model.

    Options: the fields of `TreeShape`, ``vocabulary_map``, ``kv_dtype`` and ``quantization`` (see `load_draft`).

    If the model runs on the compiled decoder, compiled code grows the trees too. Trees with proposals, and trees of a
    draft model with another vocabulary, grow an operator at a time.
    """

    name = "model"
    traits = Traits(slow=True, rests=True, auto=True, shipped="draft")

    def __init__(self, context: DrafterContext) -> None:
        if context.model is None:
            raise DrafterError("the model drafter needs a model: give the directory of a draft checkpoint")
        options = dict(context.options)
        quantization = quantization_of(options, "auto")
        table, kv_dtype = options.pop("vocabulary_map", None), str(options.pop("kv_dtype", "auto"))
        self._shape = _shape(options, _proposer_defaults(context.device) if context.target is None else {})
        if table is None:
            _check_vocabulary(context, context.model)
        self._model = load_draft(
            context.model, quantization, dtype=context.dtype, device=context.device, kv_dtype=kv_dtype
        )
        self.context_length = min(self._model.config.context_length, context.context_length)
        self._vocabulary = context.vocabulary_size
        draft_vocabulary = self._model.config.vocab_size
        self._map = None if table is None else VocabularyMap.load(table, draft_vocabulary, context.vocabulary_size)
        self._opened: dict[int, Opening] = {}
        self._native, self._price = self._native_drafts(), RoundPrice()

    def _native_drafts(self) -> NativeDrafts | None:
        decoder, shape = self._model.compiled, self._shape
        if decoder is None or self._map is not None or self._model.config.vocab_size != self._vocabulary:
            return None
        pool = self._model.new_pool(shape.pages, shape.page_size)
        grown = DraftShape(
            shape.children, shape.rows, shape.rows_each, shape.ahead, shape.prefill_rows, self.context_length,
            shape.least_value, shape.row_cost,
        )  # fmt: skip
        return NativeDrafts(decoder, pool, grown)

    @cached_property
    def _eager(self) -> EagerTrees:
        return EagerTrees(self._model, self._shape, self._vocabulary, self._map, self.context_length, self.name)

    def open(self, session: int, opening: Opening) -> None:
        """Starts guessing for a sequence."""
        self.close(session)
        self._opened[session] = opening
        sampling = opening.sampling
        if self._native is None or (opening.proposes and not sampling.greedy):
            self._eager.open(session, opening)
            return
        self._native.open(session, opening.tokens, opening.max_nodes, sampling.drawing)

    def commit(self, session: int, length: int, tokens: Sequence[int]) -> None:
        """Appends decided tokens; keeps the part of the tree below them."""
        if self._native is not None:
            self._native.commit(session, length, tokens)
        if "_eager" in self.__dict__:
            self._eager.commit(session, length, tokens)

    def rest(self, session: int) -> None:
        """Pauses drafting for the sequence until tokens are decided again; keeps its tree and pages."""
        if self._native is not None:
            self._native.rest(session)
        if "_eager" in self.__dict__:
            self._eager.rest(session)

    def close(self, session: int) -> None:
        """Forgets the sequence; sessions that lacked pages try again."""
        if self._opened.pop(session, None) is None:
            return
        if self._native is not None:
            self._native.close(session)
        if "_eager" in self.__dict__:
            self._eager.close(session)

    def price(self, costs: StepCosts) -> None:
        """Grows compiled trees no further than guesses pay."""
        self._price.costs = costs

    @property
    def free_pages(self) -> int:
        """Pages that no session holds."""
        native_pages = 0 if self._native is None else self._native.free_pages
        return native_pages + (self._eager.free_pages if "_eager" in self.__dict__ else 0)

    @property
    def reading(self) -> bool:
        """Whether a sequence has decided tokens that the model has not run on."""
        native_reading = self._native is not None and self._native.reading
        return native_reading or ("_eager" in self.__dict__ and self._eager.reading)

    def draft(self) -> list[tuple[int, DraftTree]]:
        """Runs the model a few times over the most valuable nodes of all sequences."""
        if not self._opened:
            return []
        most = max(self._shape.least_sent, self._shape.sent // len(self._opened))
        trees: list[tuple[int, DraftTree]] = []
        if self._native is not None:
            self._grow(self._native)
            for number, length, tokens, parents, confidences in self._native.trees(most):
                trees.append((number, DraftTree(length, tokens, parents, confidences, self.name)))
        return trees + (self._eager.draft(most) if "_eager" in self.__dict__ else [])

    def _grow(self, drafts: NativeDrafts) -> None:
        """Reads decided tokens in a first run, and grows nodes in the others."""
        if not drafts.grow(self._price.least_value(1)):
            return
        for depth in range(2, self._shape.rounds + 1):
            began = perf_counter()
            if not (sessions := drafts.grow(self._price.least_value(depth))):
                return self._price.skip()
            self._price.learn((perf_counter() - began) / sessions)


def _proposer_defaults(device: str) -> dict[str, Any]:
    """Defaults of options in a proposer: trees are sent after each run, and rows have a cost on a CPU."""
    return {"rounds": 1, "row_cost": 0.1 if device == "cpu" else 0.0}


def _shape(options: dict[str, Any], defaults: dict[str, Any]) -> TreeShape:
    try:
        shape = TreeShape(**defaults | options)
    except TypeError:
        allowed = ", ".join(["kv_dtype", "quantization", "vocabulary_map", *TreeShape.__dataclass_fields__])
        raise DrafterError(f"the model drafter's options are {allowed}; not {', '.join(options)}") from None
    for name, value in options.items():
        number = type(getattr(TreeShape(), name))
        if type(value) not in (number, int):
            kind = "a whole number" if number is int else "a number"
            raise DrafterError(f"the model drafter's {name} is {value!r}; it must be {kind}")
    if not 1 <= shape.children <= MOST_CHILDREN:
        raise DrafterError(f"children is {shape.children}; it must be 1 to {MOST_CHILDREN}")
    return shape


def _check_vocabulary(context: DrafterContext, model: Path) -> None:
    vocabulary = Tokenizer.load(model).fingerprint
    if vocabulary != context.vocabulary:
        raise DrafterError(
            f"the draft model's vocabulary ({vocabulary[:12]}) is not the target's ({context.vocabulary[:12]}); "
            "the option vocabulary_map can say which token is which"
        )
