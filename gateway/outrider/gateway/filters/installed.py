"""The filters of a gateway, as its settings name them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta
from outrider.gateway.admission.caller import Caller
from outrider.gateway.filters.chain import Chain, Setup
from outrider.gateway.filters.filter import Passed, Plugin
from outrider.gateway.filters.report import tell_nobody
from outrider.mesh import plugins
from outrider.mesh.errors import ConfigError, Unavailable

if TYPE_CHECKING:
    from outrider.gateway.settings import GatewaySettings

GROUP = "outrider.filters"

T = TypeVar("T")


class _Common(msgspec.Struct, forbid_unknown_fields=True):
    """Options of every filter: its plug-in if that has another name, seconds for a call, and whether it fails open."""

    plugin: str = ""
    on: Literal["answer", "prompt", "both"] = "answer"
    timeout_s: Annotated[float, Meta(gt=0, le=60)] = 5.0
    fail_open: bool = False


class InstalledFilters:
    """The filters that ``gateway.filters`` and ``gateway.filter_options`` name.

    Raises `ConfigError` for an unknown plug-in or options that do not fit.
    """

    def __init__(self, settings: GatewaySettings) -> None:
        self._everywhere = settings.filters
        names = [*settings.filters, *settings.filter_options]
        self._setups = {name: _setup(name, settings.filter_options.get(name, {})) for name in names}

    def answer_filters(self, caller: Caller) -> tuple[str, ...]:
        """The filters of the caller's answers: the gateway's, the tenant's, the key's; raises as `require`."""
        return tuple(name for name in self._names(caller) if self._setups[name].answers)

    def prompt_filters(self, caller: Caller) -> tuple[str, ...]:
        """The filters of the caller's prompts, likewise."""
        return tuple(name for name in self._names(caller) if self._setups[name].prompts)

    def require(self, names: Sequence[str]) -> None:
        """Raises `Unavailable` if a filter is not set up here."""
        for name in names:
            if name not in self._setups:
                raise Unavailable(f"the filter {name!r} is not set up at this gateway", retry_after=1.0)

    def chain(self, names: Sequence[str], report: Callable[[Passed], None] = tell_nobody) -> Chain:
        """The filters ``names`` for one text; raises as `require`."""
        self.require(names)
        return Chain([self._setups[name] for name in names], report)

    def _names(self, caller: Caller) -> list[str]:
        own = [name for owned in caller.limits for name in owned.limits.filters or ()]
        names = list(dict.fromkeys([*self._everywhere, *own]))
        self.require(names)
        return names

    async def close(self) -> None:
        """Releases what filters share, such as connections."""
        for setup in self._setups.values():
            if close := getattr(setup.make, "close", None):
                await close()


def read_options(name: str, options: Mapping[str, Any], kind: type[T]) -> T:
    """``options`` as ``kind``, a struct that forbids unknown fields; raises `ConfigError` if they do not fit."""
    try:
        return msgspec.convert(dict(options), kind, strict=False)
    except msgspec.ValidationError as error:
        raise ConfigError(f"filter_options of {name}: {error}") from None


def _setup(name: str, options: Mapping[str, Any]) -> Setup:
    own = {key: value for key, value in options.items() if key not in _Common.__struct_fields__}
    common = read_options(name, {key: options[key] for key in options.keys() - own.keys()}, _Common)
    plugin: Plugin = plugins.load(GROUP, common.plugin or name)
    prompts, answers = common.on != "answer", common.on != "prompt"
    return Setup(name, plugin(own), common.timeout_s, common.fail_open, prompts, answers)
