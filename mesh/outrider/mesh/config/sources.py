"""Where values come from: file, environment, flags, each over the one before."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import msgspec
from outrider.mesh.config.fields import Field, fields, nearest, unwrap
from outrider.mesh.config.settings import SECTIONS, Settings
from outrider.mesh.config.tables import is_table, put, split, within
from outrider.mesh.errors import ConfigError

PREFIX = "OUTRIDER_"
RESERVED = frozenset({"OUTRIDER_API_KEY", "OUTRIDER_CONFIG", "OUTRIDER_KERNELS"})
_COMMON = "mesh"
_SERVICE_LINK = re.compile(r"_(SERVICE_HOST|SERVICE_PORT(_.+)?|PORT_\d+_(TCP|UDP)(_.+)?)$")

S = TypeVar("S", bound=Settings)


class Effective(msgspec.Struct, frozen=True):
    """One key's value and the place it came from; ``shown`` is fit for other eyes."""

    field: Field
    value: Any
    source: str

    @property
    def shown(self) -> str:
        """The value as text, secrets and passwords in URLs masked."""
        if self.field.secret and self.value:
            return "********"
        return _mask_password(str(self.value))


def load(
    settings_type: type[S],
    section: str,
    *,
    file: Path | None = None,
    env: Mapping[str, str] | None = None,
    flags: Mapping[str, str] | None = None,
) -> S:
    """Settings of one service; `ConfigError` for a key nobody knows or a value that its key does not take.

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
) -> list[Effective]:
    """Every key with its effective value and source, in the order of definition; raises as `load` does."""
    known = fields(settings_type)
    found = {path: Effective(field, field.default, "default") for path, field in known.items()}
    for path, value, source in _all(known, section, file, env or {}, flags or {}):
        field, keys = _require(path, known, source)
        found[field.path] = _over(found[field.path], keys, value, source)
    missing = [path for path, entry in found.items() if entry.value is msgspec.NODEFAULT]
    if missing:
        raise ConfigError(f"{missing[0]} has no value and no default: set it in [{section}] or with a flag")
    return list(found.values())


def _over(before: Effective, keys: list[str], value: Any, source: str) -> Effective:
    """The setting with ``value``, or with ``value`` below ``keys`` of its table and the rest as it was."""
    field = before.field
    if not keys:
        return Effective(field, field.convert(value, source), source)
    table = put(before.value, keys, within(field, keys, source).convert(value, source))
    return Effective(field, table, source if before.source == "default" else f"{before.source}, {source}")


def _all(
    known: dict[str, Field], section: str, file: Path | None, env: Mapping[str, str], flags: Mapping[str, str]
) -> Iterator[tuple[str, Any, str]]:
    if file is not None:
        yield from _from_file(known, section, file)
    yield from _from_env(known, section, env)
    for path, value in sorted(flags.items(), key=lambda flag: flag[0] not in known):
        field, keys = _require(path, known, f"flag --{path}")
        yield path, value, f"flag {'.'.join([field.flag, *keys])}"


def _from_file(known: dict[str, Field], section: str, file: Path) -> Iterator[tuple[str, Any, str]]:
    tables = _read(file)
    for name, table in tables.items():
        if not isinstance(table, dict):
            raise ConfigError(f"{name} in {file} stands outside a table: put it under [{_COMMON}] or [{section}]")
        if name not in SECTIONS | {section}:
            raise ConfigError(f"[{name}] in {file} is no known table{nearest(name, SECTIONS | {section})}")
    for name, keys in ((_COMMON, fields(Settings)), (section, known)):
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


def _from_env(known: dict[str, Field], section: str, env: Mapping[str, str]) -> Iterator[tuple[str, Any, str]]:
    common = {f"{PREFIX}{field.variable}": path for path, field in fields(Settings).items()}
    own = {f"{PREFIX}{section.upper()}_{field.variable}": path for path, field in known.items()}
    inside = {f"{PREFIX}{section.upper()}_{field.variable}__": path for path, field in known.items() if is_table(field)}
    others = tuple(f"{PREFIX}{name.upper()}_" for name in SECTIONS - {section, _COMMON})
    for names in (common, own):
        yield from ((names[n], env[n], f"variable {n}") for n in env if n in names and not _is_link(n, env[n]))
    for name in env:
        if not name.startswith(PREFIX) or name in RESERVED or name in common or name in own:
            continue
        if table := next((start for start in inside if name.startswith(start)), None):
            keys = name.removeprefix(table).lower().replace("__", ".")
            yield f"{inside[table]}.{keys}", env[name], f"variable {name}"
            continue
        if not name.startswith(others) and not _is_link(name, env[name]):
            raise ConfigError(f"variable {name} is no setting{nearest(name, [*common, *own])}")


def _is_link(name: str, value: str) -> bool:
    """Whether Kubernetes set the variable, to tell of a Service that is called outrider-something."""
    return bool(_SERVICE_LINK.search(name)) or value.startswith(("tcp://", "udp://"))


def _flatten(table: dict[str, Any], known: dict[str, Field], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        path = prefix + key
        if isinstance(value, dict) and path not in known:
            yield from _flatten(value, known, f"{path}.")
        else:
            yield path, value


def _require(path: str, known: dict[str, Field], source: str) -> tuple[Field, list[str]]:
    if (found := split(path, known)) is None:
        meant = nearest(path, known) or nearest(path.partition(".")[0], known)
        raise ConfigError(f"{path} ({source}) is no setting{meant}")
    return found


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


def _mask_password(text: str) -> str:
    if "://" not in text or (password := urlsplit(text).password) is None:
        return text
    return text.replace(f":{password}@", ":********@")
