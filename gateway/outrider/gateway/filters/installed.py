"""The filters of a gateway, as its settings name them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import msgspec
from msgspec import Meta
from outrider.gateway.admission.caller import Caller
from outrider.gateway.filters.chain import Chain, Setup
from outrider.gateway.filters.filter import Plugin
from outrider.mesh import plugins
from outrider.mesh.errors import ConfigError, Unavailable

if TYPE_CHECKING:
    from outrider.gateway.settings import GatewaySettings

GROUP = "outrider.filters"

T = TypeVar("T")


class _Common(msgspec.Struct, forbid_unknown_fields=True):
    """Options of every filter: its plug-in if that has another name, seconds for a call, and whether it fails open."""

    plugin: str = ""
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

    def names(self, caller: Caller) -> tuple[str, ...]:
        """The filters of the caller's answers, in order: the gateway's, the tenant's, the key's."""
        own = [name for owned in caller.limits for name in owned.limits.filters or ()]
        return tuple(dict.fromkeys([*self._everywhere, *own]))

    def require(self, names: Sequence[str]) -> None:
        """Raises `Unavailable` if a filter is not set up here: its answers may not leave this gateway."""
        for name in names:
            if name not in self._setups:
                raise Unavailable(f"the filter {name!r} of this answer is not set up at this gateway", retry_after=1.0)

    def chain(self, names: Sequence[str]) -> Chain:
        """The filters ``names`` for one answer; raises as `require`."""
        self.require(names)
        return Chain([self._setups[name] for name in names])

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
    return Setup(name, plugin(own), common.timeout_s, common.fail_open)
