"""The models that the mesh serves, and the services that serve them."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from contextlib import nullcontext
from types import MappingProxyType

import msgspec
from outrider.gateway import metrics
from outrider.gateway.errors import UnknownModel
from outrider.mesh.attempts import TRANSIENT, persist
from outrider.mesh.errors import InvalidRequest, Unavailable
from outrider.mesh.registry import Member, Registry, State
from outrider.wire.calls import CallStyle
from outrider.wire.thoughts import ThoughtStyle


class ServedModel(msgspec.Struct, frozen=True):
    """A model with a tokenizer and a verifier of one vocabulary; ``calls`` is the format of its calls of functions.

    ``thoughts`` are the marks of its thoughts, None without any. ``sampling`` is what requests get that name no other.
    ``infill_ends`` end an answer in front of a suffix; None where the model has no tokens for suffixes.
    """

    name: str
    vocabulary: str
    context_length: int
    calls: CallStyle = CallStyle()
    thoughts: ThoughtStyle | None = None
    sampling: tuple[tuple[str, int | float], ...] = ()
    infill_ends: tuple[int, ...] | None = None

    def served_by(self, member: Member) -> bool:
        """Whether ``member`` serves this model, with this vocabulary."""
        return member.status.get("model") == self.name and member.status.get("vocabulary") == self.vocabulary


class _Announced(msgspec.Struct):
    """What a tokenizer's status says of its model."""

    calls: CallStyle = CallStyle()
    thoughts: ThoughtStyle | None = None
    sampling: tuple[tuple[str, int | float], ...] = ()
    infill_ends: tuple[int, ...] | None = None


class Models:
    """The models that the registry's members serve, and the ``cold`` ones, which may have no verifier at the moment.

    Requests wait for a cold model for ``cold_s`` seconds. ``aliases`` are further names, each with that of its model;
    the model's own name counts wherever one is limited, counted or stored.
    """

    def __init__(
        self,
        registry: Registry,
        cold: Collection[str] = (),
        cold_s: float = 0.0,
        aliases: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._registry, self._aliases = registry, aliases
        self._cold, self._cold_s = frozenset(cold), cold_s
        self._seen = set(cold)
        self._models_changes, self._models = -1, list[ServedModel]()
        self._members_changes, self._members = -1, dict[tuple[str, ServedModel], list[Member]]()

    def all(self) -> list[ServedModel]:
        """All models that can be served now; each has the vocabulary that most of its verifiers have."""
        if self._models_changes != self._registry.changes:
            self._models_changes, self._models = self._registry.changes, self._find_models()
        return self._models

    def _find_models(self) -> list[ServedModel]:
        tokenizers = {_identity(m): m.status for m in self._ready("tokenizer")}
        verifiers = [m for m in self._ready("verifier") if _identity(m) in tokenizers]
        best: dict[str, ServedModel] = {}
        for (name, vocabulary), _ in reversed(Counter(map(_identity, verifiers)).most_common()):
            contexts = [m.status["context_length"] for m in verifiers if _identity(m) == (name, vocabulary)]
            announced = msgspec.convert(tokenizers[name, vocabulary], _Announced)
            best[name] = ServedModel(name, vocabulary, min(contexts), *msgspec.structs.astuple(announced))
        self._seen |= best.keys()
        return sorted(best.values(), key=lambda served: served.name)

    def find(self, name: str | None, may_use: Callable[[str], bool] = lambda name: True) -> ServedModel:
        """The model called ``name``, or the only model if that is None; models without ``may_use`` do not count.

        Raises `UnknownModel`, `Unavailable` if the model has no ready services at the moment, and `InvalidRequest` if
        ``name`` is None and there are several models.
        """
        name, names = self._own_name(name), self.names(may_use)
        if name is None and len(names) > 1:
            raise InvalidRequest(
                f"model is required where several are served; there are: {', '.join(names)}", param="model"
            )
        wanted = _wanted(name, names)
        if name is not None:
            require_allowed(name, may_use)
        for model in self.all():
            if model.name == wanted and may_use(model.name):
                return model
        if not names or self.seen(wanted):
            raise Unavailable(f"no service is ready for the model {wanted or ''}".rstrip(), retry_after=1.0)
        raise UnknownModel(f"the model {name!r} does not exist; there are: {', '.join(names)}", param="model")

    def aliases(self, name: str) -> list[str]:
        """The further names of the model called ``name``."""
        return sorted(alias for alias, own in self._aliases.items() if own == name)

    def _own_name(self, name: str | None) -> str | None:
        """The model's own name for an alias; a model that is called so comes before an alias."""
        return name if name is None or name in self._seen else self._aliases.get(name, name)

    def names(self, may_use: Callable[[str], bool] = lambda name: True) -> list[str]:
        """Names of the models that can be asked for: those that are served, and the cold ones."""
        return sorted(filter(may_use, self._cold | {model.name for model in self.all()}))

    async def wait_for(self, name: str | None, may_use: Callable[[str], bool], seconds: float) -> ServedModel:
        """As `find`; waits up to ``seconds`` for a model that was served before, and longer for a cold one.

        While it waits, the request counts as unplaced. Waits for any model until all members have had time to announce
        themselves: a gateway that starts together with its broker learns of the members one by one.
        """

        async def find() -> ServedModel:
            return self.find(name, may_use)

        name = self._own_name(name)
        for model in self.all():
            if model.name == name and may_use(name):
                return model
        due, wanted = self._registry.news_due_s, _wanted(name, self.names(may_use))
        known_s = self._cold_s if wanted in self._cold else seconds
        patience = max(due, known_s if self.seen(wanted) else 0.0)
        with metrics.unplaced.labels(wanted).track_inprogress() if wanted in self._seen else nullcontext():
            return await persist(find, patience, (UnknownModel, *TRANSIENT) if due else TRANSIENT)

    def seen(self, name: str | None) -> bool:
        """Whether the model called ``name``, or any for None, was served at some time."""
        return bool(self._seen) if name is None else name in self._seen

    def tokenizers(self, served: ServedModel) -> list[Member]:
        """Ready tokenizers for ``served``, in random order."""
        members = self._ready_for("tokenizer", served)
        return random.sample(members, len(members)) if len(members) > 1 else members

    def verifiers(self, served: ServedModel) -> list[Member]:
        """Ready verifiers for ``served``; verifiers with the role ``prefill`` only if there are no others."""
        members = self._ready_for("verifier", served)
        return [member for member in members if member.status.get("role") != "prefill"] or members

    def end_token_ids(self, served: ServedModel) -> list[int]:
        """Ids of the tokens that end an answer of ``served``, as its verifiers say."""
        return sorted({token for member in self.verifiers(served) for token in member.status.get("end_token_ids", ())})

    def _ready_for(self, kind: str, served: ServedModel) -> list[Member]:
        """Ready members of ``kind`` for ``served``; cached until the registry changes."""
        if self._members_changes != self._registry.changes:
            self._members_changes = self._registry.changes
            self._members.clear()
        if (members := self._members.get((kind, served))) is None:
            members = [member for member in self._ready(kind) if served.served_by(member)]
            self._members[kind, served] = members
        return members

    def _ready(self, kind: str) -> list[Member]:
        return [member for member in self._registry.members(kind) if member.state == State.READY]


def _identity(member: Member) -> tuple[str, str]:
    return str(member.status.get("model")), str(member.status.get("vocabulary"))


def _wanted(name: str | None, names: list[str]) -> str | None:
    """``name``, or the only one of ``names``."""
    return names[0] if name is None and len(names) == 1 else name


def require_allowed(name: str, may_use: Callable[[str], bool]) -> None:
    """Raises `UnknownModel` unless ``may_use(name)``."""
    if not may_use(name):
        raise UnknownModel(f"the model {name!r} does not exist, or you may not use it", param="model")
