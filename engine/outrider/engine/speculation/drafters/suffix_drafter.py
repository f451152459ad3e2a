"""Guesses that a sequence continues as its latest tokens did before, in itself or in the tenant's answers."""

from __future__ import annotations

from collections.abc import Sequence

from outrider.engine.speculation.drafters.drafter import Drafter, DrafterContext, DrafterError, Opening, Traits
from outrider.engine.speculation.drafters.plain_suffixes import PlainSuffixes
from outrider.engine.speculation.trees.tree import DraftTree
from outrider.kernels.backend import BackendError, compiled
from outrider.native.levels import LevelError
from outrider.native.library import Library
from outrider.native.suffixes import NativeSuffixes, SuffixShape

_ALONE = "/"
"""Begins the names that stand for the tenant of private sessions; no tenant's name has it."""


class SuffixDrafter(Drafter):
    """Makes one tree for each sequence, with confidences from counts. Options: the fields of `SuffixShape`.

    The drafter needs no model and runs in the verifier or in a proposer, in compiled code if that is available.
    """

    name = "suffix"
    traits = Traits(auto=True)

    def __init__(self, context: DrafterContext) -> None:
        shape, library = _shape(context), _library()
        self.context_length = context.context_length
        self._sessions: dict[int, str] = {}
        self._recent: set[str] = set()
        self._known: set[str] = set()
        self._suffixes = PlainSuffixes(shape) if library is None else NativeSuffixes(shape, library)

    def open(self, session: int, opening: Opening) -> None:
        """Starts guessing for a sequence."""
        owner = f"{_ALONE}{session}" if opening.private else opening.tenant
        self._sessions[session] = owner
        self._suffixes.open(session, opening.tokens, opening.prompt, owner, opening.max_nodes)

    def commit(self, session: int, length: int, tokens: Sequence[int]) -> None:
        """Appends decided tokens."""
        self._suffixes.commit(session, tokens)

    def close(self, session: int) -> None:
        """Ends the session; keeps its answer for the tenant's later requests, unless it is private."""
        owner = self._sessions.pop(session, None)
        if owner is None:
            return
        if owner.startswith(_ALONE):
            self._suffixes.forget(owner)
        else:
            self._recent.add(owner)
            self._suffixes.close(session)

    def forget(self, tenant: str) -> None:
        """Drops the tenant's sessions and answers."""
        self._sessions = {session: owner for session, owner in self._sessions.items() if owner != tenant}
        self._suffixes.forget(tenant)

    def expire(self) -> None:
        """Drops the answers of tenants that had no session since the last call."""
        present = self._recent | set(self._sessions.values())
        for tenant in self._known - present:
            self._suffixes.forget(tenant)
        self._known, self._recent = present, set()

    def draft(self) -> list[tuple[int, DraftTree]]:
        """Reads a bounded number of new tokens; returns trees of sequences that are up to date."""
        return [
            (number, DraftTree(length, tokens, parents, confidences, self.name))
            for number, length, tokens, parents, confidences in self._suffixes.draft()
        ]


def _shape(context: DrafterContext) -> SuffixShape:
    try:
        shape = SuffixShape(**context.options)
    except TypeError:
        allowed = ", ".join(SuffixShape.__dataclass_fields__)
        raise DrafterError(f"the suffix drafter's options are {allowed}; not {', '.join(context.options)}") from None
    for name, value in context.options.items():
        if type(value) is not int or not 1 <= value < 2**31:
            raise DrafterError(f"the suffix drafter's {name} is {value!r}; it must be a whole number from 1 on")
    return shape


def _library() -> Library | None:
    try:
        return compiled()
    except (BackendError, LevelError) as error:
        raise DrafterError(str(error)) from None
