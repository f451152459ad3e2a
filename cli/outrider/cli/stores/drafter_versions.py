"""Writes versions of drafters into the mesh's key-value store for verifiers to load, and shows what each made of it."""

from __future__ import annotations

import asyncio
import re
import sys
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
from outrider.cli.bus.rights import ADMIN
from outrider.cli.stores.store import print_table, run_on_bus
from outrider.mesh.bus import Bucket, Bus, Entry
from outrider.mesh.errors import AlreadyExists, ConfigError
from outrider.mesh.registry import Registry
from outrider.mesh.tasks import Tasks
from outrider.wire import tenants
from outrider.wire.drafters import (
    BUCKET,
    MOST_VERSIONS,
    NAME,
    DrafterRecord,
    DrafterState,
    Version,
    record_entry,
)

REFUSED = 1
"""Exit code where a verifier does not run what the record says."""
_NUMBERED = re.compile(r"v([0-9]+)")

Group = tuple[str, str | None, str | None]
"""A drafter, the target's served name (None: the only one), and a tenant (None: all without a version of their own)."""


def run(work: Callable[[StoredVersions], Coroutine[Any, Any, int]], nats_url: str | None, config: Path | None) -> int:
    """Runs ``work`` on the stored versions; returns its exit code."""

    async def on_bus(bus: Bus) -> int:
        records, tasks = Bucket(bus, BUCKET), Tasks()
        await records.open()
        registry = Registry(bus, ADMIN, f"{ADMIN}-{time.time_ns():x}", tasks=tasks)
        try:
            await registry.start()
            await asyncio.sleep(registry.news_due_s)
            return await work(StoredVersions(records, registry))
        finally:
            await tasks.cancel()

    return run_on_bus("outrider drafter", on_bus, nats_url, config)


class StoredVersions:
    """The stored versions; each method runs one command, prints its result, and returns the exit code."""

    def __init__(self, bucket: Bucket, registry: Registry) -> None:
        self._bucket, self._registry = bucket, registry

    async def use(self, source: str, name: str | None, group: Group, wait_s: float) -> int:
        """Has verifiers change to the drafter at ``source``, under a ``name`` or the next free one: v1, v2, ..."""
        key, record, revision = await self._find(group)
        known = None if name is None else record.named(name)
        if known is not None and known.model != source:
            raise ConfigError(f"the version {name} is {known.model}: give {source} another name")
        if known is None:
            name = name or _next_name(record.versions)
            _check_name("version", name)
            versions = (*record.versions, Version(name, source, time.time()))
            record = msgspec.structs.replace(record, versions=_latest(versions, record.used))
        used = tuple(each for each in record.used if each != name and record.named(each))
        record = msgspec.structs.replace(record, used=(*used, str(name)), judged=True)
        return await self._write(key, record, revision, wait_s)

    async def rollback(self, group: Group, wait_s: float) -> int:
        """Has verifiers change to the version before."""
        key, record, revision = await self._find(group)
        if not record.used:
            raise ConfigError(f"{_named(record)} has no version to roll back: `outrider drafter list` shows all")
        record = msgspec.structs.replace(record, used=record.used[:-1], judged=False)
        return await self._write(key, record, revision, wait_s)

    async def list_all(self) -> int:
        """Prints all versions, and what verifiers run."""
        entries = [await self._bucket.get(key) for key in await self._bucket.keys()]
        records = [_decode(entry) for entry in entries if entry is not None]
        rows = [
            (record.model, record.drafter, _tenant(record.tenant), version.name, version.model, _place(record, version))
            for record in records
            for version in record.versions
        ]
        print_table(("model", "drafter", "tenant", "version", "from", "use"), rows)
        print()
        self._print_states([(m, state) for r in records for m, state in self._states(r) if state is not None])
        return 0

    async def _find(self, group: Group) -> tuple[str, DrafterRecord, int]:
        drafter, model, tenant = group
        _check_name("drafter", drafter)
        if tenant is not None and not tenants.NAME.fullmatch(tenant):
            raise ConfigError(f"{tenant!r} is no name for a tenant: 1 to 64 letters, digits, - and _")
        model = model or self._only_model()
        key = record_entry(model, drafter, tenant)
        entry = await self._bucket.get(key)
        if entry is None:
            return key, DrafterRecord(model=model, drafter=drafter, tenant=tenant), 0
        return key, _decode(entry), entry.revision

    def _only_model(self) -> str:
        models = sorted({member.status["model"] for member in self._registry.members("verifier")})
        if len(models) != 1:
            there = f"verifiers serve {', '.join(models)}" if models else "no verifier runs"
            raise ConfigError(f"{there}: name the target with --model")
        return str(models[0])

    async def _write(self, key: str, record: DrafterRecord, revision: int, wait_s: float) -> int:
        try:
            revision = await self._bucket.swap(key, msgspec.json.encode(record), revision)
        except AlreadyExists:
            raise ConfigError(f"{_named(record)} was changed at the same time: try again") from None
        version = record.version
        now = "as the settings say" if version is None else f"the version {version.name} of {version.model}"
        print(f"{_named(record)} is from now on {now}.")
        return await self._wait(record, revision, wait_s)

    async def _wait(self, record: DrafterRecord, revision: int, wait_s: float) -> int:
        """Waits until verifiers say what they made of the record, and prints it."""

        def answered(_: object = None) -> bool:
            return all(state is not None and state.revision >= revision for _, state in self._states(record))

        changed = asyncio.Event()
        self._registry.on_change("verifier", lambda _: changed.set())
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                while not answered():
                    await changed.wait()
                    changed.clear()
        states = self._states(record)
        if not states:
            print(f"No verifier of {record.model} runs: those that start will load it.", file=sys.stderr)
            return 0
        self._print_states([(name, state) for name, state in states if state is not None])
        if not answered():
            silent = [name for name, state in states if state is None or state.revision < revision]
            print(f"outrider: no answer yet from {', '.join(silent)}", file=sys.stderr)
            return REFUSED
        return 0 if all(state is not None and state.state == "loaded" for _, state in states) else REFUSED

    def _states(self, record: DrafterRecord) -> list[tuple[str, DrafterState | None]]:
        """The verifiers of a record's model, and what each made of it."""
        members = [member for member in self._registry.members("verifier") if member.status["model"] == record.model]
        return [(member.instance, _state(member.status.get("drafters", []), record)) for member in members]

    def _print_states(self, states: Sequence[tuple[str, DrafterState]]) -> None:
        rows = [(name, each.drafter, _tenant(each.tenant), each.runs or "none", each.state) for name, each in states]
        print_table(("verifier", "drafter", "tenant", "runs", "state"), rows)


def _state(announced: list[Any], record: DrafterRecord) -> DrafterState | None:
    states = msgspec.convert(announced, list[DrafterState])
    return next((s for s in states if (s.drafter, s.tenant) == (record.drafter, record.tenant)), None)


def _decode(entry: Entry) -> DrafterRecord:
    return msgspec.json.decode(entry.value, type=DrafterRecord)


def _next_name(versions: Sequence[Version]) -> str:
    numbers = [int(match[1]) for version in versions if (match := _NUMBERED.fullmatch(version.name))]
    return f"v{max(numbers, default=0) + 1}"


def _latest(versions: Sequence[Version], used: Sequence[str]) -> tuple[Version, ...]:
    """The latest versions, at most `MOST_VERSIONS`, and the one in use."""
    left = len(versions) - MOST_VERSIONS
    dropped = [version for version in versions[:-1] if version.name not in used[-1:]][: max(left, 0)]
    return tuple(version for version in versions if version not in dropped)


def _place(record: DrafterRecord, version: Version) -> str:
    return "in use" if record.used[-1:] == (version.name,) else "before" if version.name in record.used else ""


def _tenant(tenant: str | None) -> str:
    return "all" if tenant is None else tenant


def _named(record: DrafterRecord) -> str:
    whose = "" if record.tenant is None else f" for {record.tenant}"
    return f"The drafter {record.drafter} of {record.model}{whose}"


def _check_name(kind: str, name: str) -> None:
    if not NAME.fullmatch(name):
        raise ConfigError(f"{name!r} is no name for a {kind}: 1 to 64 letters, digits, - and _")
