"""The sources of values: file, environment, flags; each overrides the one before."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from outrider.mesh.config.fields import Field, fields, nearest, unwrap
from outrider.mesh.config.settings import SECTIONS, Settings
from outrider.mesh.config.tables import is_table, nested_field, split_path, with_value
from outrider.mesh.errors import ConfigError
from outrider.mesh.urls import without_passwords

PREFIX = "OUTRIDER_"
RESERVED = frozenset(
    {"OUTRIDER_API_KEY", "OUTRIDER_CONFIG", "OUTRIDER_KERNELS", "OUTRIDER_LAUNCHER", "OUTRIDER_NATIVE_LEVEL"}
)
_COMMON = "mesh"
_SERVICE_LINK = re.compile(r"_(SERVICE_HOST|SERVICE_PORT(_.+)?|PORT_\d+_(TCP|UDP)(_.+)?)$")

S = TypeVar("S", bound=Settings)


class EffectiveSetting(msgspec.Struct, frozen=True):
    """One key's value and its source; ``shown`` masks secrets."""

    field: Field
    value: Any
    source: str

    @property
    def shown(self) -> str:
        """The value as text, secrets and passwords in URLs masked."""
        if self.field.secret and self.value:
            return "********"
        return without_passwords(str(self.value))


def load(
    settings_type: type[S],
    section: str,
    *,
    file: Path | None = None,
    env: Mapping[str, str] | None = None,
    flags: Mapping[str, str] | None = None,
) -> S:
    """Settings of one service; `ConfigError` for an unknown key or a value that its key does not allow.

    The file's ``[mesh]`` table, its ``[section]`` table, ``OUTRIDER_<KEY>``, ``OUTRIDER_<SECTION>_<KEY>`` and
    flags (by dotted key) each override the ones before.
    """
    effective = describe(settings_type, section, file=file, env=env, flags=flags)
    try:
        return settings_type(**_nest(settings_type, {e.field.path: e.value for e in effective}))
    except ValueError as error:
        raise ConfigError(f"[{section}]: {error}") from None


def describe(
    settings_type: type[Settings],
    section: str,
    *,
    file: Path | None = None,
    env: Mapping[str, str] | None = None,
    flags: Mapping[str, str] | None = None,
) -> list[EffectiveSetting]:
    """Every key with its effective value and source, in the order of definition; raises as `load` does."""
    known_fields = fields(settings_type)
    settings = {path: EffectiveSetting(field, field.default, "default") for path, field in known_fields.items()}
    for path, value, source in _all_values(known_fields, section, file, env or {}, flags or {}):
        field, keys = _require(path, known_fields, source)
        settings[field.path] = _override(settings[field.path], keys, value, source)
    missing = [path for path, entry in settings.items() if entry.value is msgspec.NODEFAULT]
    if missing:
        raise ConfigError(f"{missing[0]} has no value and no default: set it in [{section}] or with a flag")
    return list(settings.values())


def _override(before: EffectiveSetting, keys: list[str], value: Any, source: str) -> EffectiveSetting:
    """The setting with ``value``, or its table with ``value`` below ``keys``."""
    field = before.field
    if not keys:
        return EffectiveSetting(field, field.convert(value, source), source)
    table = with_value(before.value, keys, nested_field(field, keys, source).convert(value, source))
    return EffectiveSetting(field, table, source if before.source == "default" else f"{before.source}, {source}")


def _all_values(
    known_fields: dict[str, Field], section: str, file: Path | None, env: Mapping[str, str], flags: Mapping[str, str]
) -> Iterator[tuple[str, Any, str]]:
    if file is not None:
        yield from _from_file(known_fields, section, file)
    yield from _from_env(known_fields, section, env)
    for path, value in sorted(flags.items(), key=lambda flag: flag[0] not in known_fields):
        field, keys = _require(path, known_fields, f"flag --{path}")
        yield path, value, f"flag {'.'.join([field.flag, *keys])}"


def _from_file(known_fields: dict[str, Field], section: str, file: Path) -> Iterator[tuple[str, Any, str]]:
    tables = _read(file)
    for name, table in tables.items():
        if not isinstance(table, dict):
            raise ConfigError(f"{name} in {file} stands outside a table: put it under [{_COMMON}] or [{section}]")
        if name not in SECTIONS | {section}:
            raise ConfigError(f"[{name}] in {file} is no known table{nearest(name, SECTIONS | {section})}")
    for name, keys in ((_COMMON, fields(Settings)), (section, known_fields)):
        for path, value in _flatten(tables.get(name, {}), keys):
            source = f"[{name}] in {file}"
            _require(path, keys, source)
            yield path, value, source


def _read(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text("utf-8"))
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} is not TOML: {error}") from None


def _from_env(known_fields: dict[str, Field], section: str, env: Mapping[str, str]) -> Iterator[tuple[str, Any, str]]:
    common = {f"{PREFIX}{field.variable}": path for path, field in fields(Settings).items()}
    own = {f"{PREFIX}{section.upper()}_{field.variable}": path for path, field in known_fields.items()}
    inside = {
        f"{PREFIX}{section.upper()}_{field.variable}__": path for path, field in known_fields.items() if is_table(field)
    }
    others = tuple(f"{PREFIX}{name.upper()}_" for name in SECTIONS - {section, _COMMON})
    for names in (common, own):
        yield from ((names[n], env[n], f"variable {n}") for n in env if n in names and not _is_service_link(n, env[n]))
    for name in env:
        if not name.startswith(PREFIX) or name in RESERVED or name in common or name in own:
            continue
        if table := next((start for start in inside if name.startswith(start)), None):
            keys = name.removeprefix(table).lower().replace("__", ".")
            yield f"{inside[table]}.{keys}", env[name], f"variable {name}"
            continue
        if not name.startswith(others) and not _is_service_link(name, env[name]):
            raise ConfigError(f"variable {name} is no setting{nearest(name, [*common, *own])}")


def _is_service_link(name: str, value: str) -> bool:
    """Whether Kubernetes set the variable for a Service whose name begins with outrider."""
    return bool(_SERVICE_LINK.search(name)) or value.startswith(("tcp://", "udp://"))


def _flatten(table: dict[str, Any], known_fields: dict[str, Field], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        path = prefix + key
        if isinstance(value, dict) and path not in known_fields:
            yield from _flatten(value, known_fields, f"{path}.")
        else:
            yield path, value


def _require(path: str, known_fields: dict[str, Field], source: str) -> tuple[Field, list[str]]:
    if (field_and_keys := split_path(path, known_fields)) is None:
        meant = nearest(path, known_fields) or nearest(path.partition(".")[0], known_fields)
        raise ConfigError(f"{path} ({source}) is no setting{meant}")
    return field_and_keys


def _nest(settings_type: type[msgspec.Struct], values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Constructor arguments of ``settings_type``, nested structs built from their dotted keys."""
    arguments: dict[str, Any] = {}
    for item in msgspec.structs.fields(settings_type):
        path = prefix + item.encode_name
        if path in values:
            arguments[item.name] = values[path]
        else:
            nested, _ = unwrap(item.type)
            arguments[item.name] = nested(**_nest(nested, values, f"{path}."))
    return arguments
