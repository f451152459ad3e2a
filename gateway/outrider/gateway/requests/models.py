"""Which models can be served, and by whom."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

import msgspec
from outrider.gateway.errors import UnknownModel
from outrider.gateway.requests.attempts import TRANSIENT, persist
from outrider.mesh.errors import InvalidRequest, Unavailable
from outrider.mesh.registry import Member, Registry, State
from outrider.wire.calls import CallStyle


class Served(msgspec.Struct, frozen=True):
    """A model that a tokenizer and a verifier of the same vocabulary serve; ``calls`` is how it writes calls."""

    name: str
    vocabulary: str
    context_length: int
    calls: CallStyle = CallStyle()

    def by(self, member: Member) -> bool:
        """Whether ``member`` serves this very model."""
        return member.status.get("model") == self.name and member.status.get("vocabulary") == self.vocabulary


class Models:
    """What the registry's members serve. ``in_flight`` tells how many streams of ours an instance has."""

    def __init__(self, registry: Registry, in_flight: Callable[[str], int]) -> None:
        self._registry = registry
        self._in_flight = in_flight
        self._seen: set[str] = set()
        self._told, self._served = -1, list[Served]()
        self._known, self._found = -1, dict[tuple[str, Served], list[Member]]()

    def all(self) -> list[Served]:
        """Every model that can be served now; of several vocabularies the one with the most verifiers."""
        if self._told != self._registry.changes:
            self._told, self._served = self._registry.changes, self._serving()
        return self._served

    def _serving(self) -> list[Served]:
        tokenizers = {_identity(m): m.status.get("calls", {}) for m in self._ready("tokenizer")}
        verifiers = [m for m in self._ready("verifier") if _identity(m) in tokenizers]
        best: dict[str, Served] = {}
        for (name, vocabulary), _ in reversed(Counter(map(_identity, verifiers)).most_common()):
            contexts = [m.status["context_length"] for m in verifiers if _identity(m) == (name, vocabulary)]
            style = msgspec.convert(tokenizers[name, vocabulary], CallStyle)
            best[name] = Served(name, vocabulary, min(contexts), style)
        self._seen |= best.keys()
        return sorted(best.values(), key=lambda served: served.name)

    def find(self, name: str | None, may_use: Callable[[str], bool] = lambda name: True) -> Served:
        """The model called ``name``, or the only one there is; others than those one ``may_use`` are as good as none.

        `UnknownModel`, or `Unavailable` for one that nobody can serve just now; `InvalidRequest` when there are
        several to choose from.
        """
        served = [model for model in self.all() if may_use(model.name)]
        fitting = [model for model in served if name in (None, model.name)]
        there = ", ".join(model.name for model in served)
        if len(fitting) == 1:
            return fitting[0]
        if fitting:
            raise InvalidRequest(f"model is required where several are served; there are: {there}", param="model")
        if name is not None:
            require_allowed(name, may_use)
        if not served or self.seen(name):
            raise Unavailable(f"no service is ready for the model {name or ''}".rstrip(), retry_after=1.0)
        raise UnknownModel(f"the model {name!r} does not exist; there are: {there}", param="model")

    async def wait_for(self, name: str | None, may_use: Callable[[str], bool], seconds: float) -> Served:
        """The model called ``name``, as `find`.

        A model that was served at some time is waited for, for ``seconds``. So is any model until every member has had
        time to announce itself: a gateway and a broker that start together learn of the members one by one.
        """

        async def find() -> Served:
            return self.find(name, may_use)

        due = self._registry.news_due_s
        patience = max(due, seconds if self.seen(name) else 0.0)
        return await persist(find, patience, (UnknownModel, *TRANSIENT) if due else TRANSIENT)

    def seen(self, name: str | None) -> bool:
        """Whether the model called ``name``, or any for None, was served at some time."""
        return bool(self._seen) if name is None else name in self._seen

    def tokenizers(self, served: Served) -> list[Member]:
        """Ready tokenizers for ``served``, in random order."""
        found = self._serve("tokenizer", served)
        return random.sample(found, len(found)) if len(found) > 1 else found

    def verifiers(self, served: Served) -> list[Member]:
        """Ready verifiers for ``served``: those that compute prompts for others only where there is nobody else."""
        found = self._serve("verifier", served)
        return [member for member in found if member.status.get("role") != "prefill"] or found

    def _serve(self, kind: str, served: Served) -> list[Member]:
        """The ready ones of ``kind`` for ``served``, which are looked for when the mesh has changed."""
        if self._known != self._registry.changes:
            self._known = self._registry.changes
            self._found.clear()
        if (found := self._found.get((kind, served))) is None:
            found = [member for member in self._ready(kind) if served.by(member)]
            self._found[kind, served] = found
        return found

    def _ready(self, kind: str) -> list[Member]:
        return [member for member in self._registry.members(kind) if member.state == State.READY]

    def load(self, member: Member) -> int:
        """Requests of a verifier: what it last told, or our own streams on it where those are news to it."""
        return max(int(member.status.get("load", 0)), self._in_flight(member.instance))


def _identity(member: Member) -> tuple[str, str]:
    return str(member.status.get("model")), str(member.status.get("vocabulary"))


def require_allowed(name: str, may_use: Callable[[str], bool]) -> None:
    """Raises `UnknownModel` for a model that one may not use."""
    if not may_use(name):
        raise UnknownModel(f"the model {name!r} does not exist, or you may not use it", param="model")
