"""Erases a tenant: in the broker's store from here, elsewhere by a mark that every service confirms."""

from __future__ import annotations

import asyncio
import sys
import time
from collections import Counter, defaultdict
from contextlib import suppress
from pathlib import Path

import msgspec
from outrider.cli.bus.rights import ADMIN
from outrider.cli.stores.store import local_user, print_table, run_on_bus
from outrider.mesh.bus import Bucket, Bus, Message
from outrider.mesh.erasures import BUCKET, KEEP_S, Erased, Erasure, decode_erased, erased_subject
from outrider.mesh.errors import ConfigError
from outrider.mesh.registry import Member, Registry
from outrider.mesh.tasks import Tasks
from outrider.mesh.telemetry import audit
from outrider.mesh.telemetry.audit_record import Outcome
from outrider.wire import drafters, prompts, tenants
from outrider.wire.prompts import prompt_entry
from outrider.wire.subjects import LIMITS_BUCKET
from outrider.wire.tenants import NAME, Key, key_entry, tenant_entry

KINDS = ("gateway", "verifier", "proposer", "tokenizer", "kvcache")
INCOMPLETE = 1
"""Exit code where some data of the tenant may be left."""
_ROUNDS = 2
"""The second mark ends what was under way between two services when they read the first."""

Process = tuple[str, str]
"""Kind and instance."""


def run(name: str, wait_s: float, nats_url: str | None, config: Path | None) -> int:
    """Erases the tenant ``name``; waits ``wait_s`` seconds for each confirmation. Returns the exit code."""

    async def work(bus: Bus) -> int:
        if not NAME.fullmatch(name):
            raise ConfigError(f"{name!r} is no name for a tenant: 1 to 64 letters, digits, - and _")
        tasks = Tasks()
        registry = Registry(bus, ADMIN, f"{ADMIN}-{time.time_ns():x}", tasks=tasks)
        try:
            return await TenantErasure(bus, registry, name, wait_s).run()
        finally:
            await tasks.cancel()

    return run_on_bus("outrider tenants", work, nats_url, config)


class TenantErasure:
    """One run of the command. Prints what was erased where, and who did not confirm."""

    def __init__(self, bus: Bus, registry: Registry, name: str, wait_s: float) -> None:
        self._bus, self._registry, self._name, self._wait_s = bus, registry, name, wait_s
        self._counts: defaultdict[Process, Counter[str]] = defaultdict(Counter)
        self._confirmed: dict[Process, int] = {}
        self._news = asyncio.Event()
        self._keys: set[str] = set()

    async def run(self) -> int:
        """Erases; returns the exit code."""
        await self._bus.subscribe(erased_subject("*"), self._on_erased)
        await self._registry.start()
        marks = Bucket(self._bus, BUCKET)
        await marks.open(KEEP_S)
        await asyncio.sleep(self._registry.news_due_s)
        silent: set[Process] = set()
        for _ in range(_ROUNDS):
            await self._wipe_store()
            revision = await marks.put(self._name, msgspec.json.encode(Erasure(time.time())))
            silent |= await self._unconfirmed(revision, silent)
        await self._wipe_store()
        self._print()
        return self._explain(silent)

    async def _wipe_store(self) -> None:
        """Erases the tenant, its keys, prompts and counts of limits in the broker's store."""
        stored, values = Bucket(self._bus, tenants.BUCKET), self._counts["broker", ""]
        for entry in await self._key_entries(stored):
            self._keys.add(entry)
            values["keys"] += await stored.wipe(entry)
        values["tenants"] += await stored.wipe(tenant_entry(self._name))
        values["prompts"] += await Bucket(self._bus, prompts.BUCKET).wipe(prompt_entry(self._name, ">"))
        values["drafters"] += await Bucket(self._bus, drafters.BUCKET).wipe(drafters.tenant_entries(self._name))
        for owner in (tenant_entry(self._name), *self._keys):
            values["counts of limits"] += await Bucket(self._bus, LIMITS_BUCKET).wipe(f"{owner}.>")

    async def _key_entries(self, stored: Bucket) -> list[str]:
        names = [name for name in await stored.keys() if name.startswith(key_entry(""))]
        entries = [(name, await stored.get(name)) for name in names]
        keys = [(name, msgspec.json.decode(entry.value, type=Key)) for name, entry in entries if entry is not None]
        return [name for name, key in keys if key.tenant == self._name]

    async def _unconfirmed(self, revision: int, silent: set[Process]) -> set[Process]:
        """The services that do not confirm the mark of ``revision`` in time; those ``silent`` before get no time."""
        awaited = {_process(member) for kind in KINDS for member in self._registry.members(kind)}

        def missing() -> set[Process]:
            return {each for each in awaited if self._confirmed.get(each, 0) < revision}

        with suppress(TimeoutError):
            async with asyncio.timeout(self._wait_s):
                while missing() - silent:
                    await self._news.wait()
                    self._news.clear()
        return missing()

    def _on_erased(self, message: Message) -> None:
        erased: Erased = decode_erased(message.data)
        process = erased.kind, erased.instance
        if erased.tenant == self._name and message.subject == erased_subject(erased.kind):
            self._confirmed[process] = erased.revision
            self._counts[process].update(erased.counts)
            self._news.set()

    def _print(self) -> None:
        rows = [(kind, name, _shown(counts)) for (kind, name), counts in sorted(self._counts.items())]
        print_table(("where", "instance", "erased"), rows)

    def _explain(self, silent: set[Process]) -> int:
        """Says on standard error, and to the audit log, who did not confirm; returns the exit code."""
        names = ", ".join(f"{kind} {name}" for kind, name in sorted(silent))
        if silent:
            print(f"outrider: not confirmed by {names}: data may be left there until they answer", file=sys.stderr)
        gateways = any(kind == "gateway" for kind, _ in self._confirmed)
        outcome: Outcome = "failed" if silent or not gateways else "done"
        audit("content_erased", outcome=outcome, actor=local_user(), tenant=self._name, door="cli", reason=names)
        if not gateways:
            print("outrider: no gateway confirmed: records of streams stay until one runs", file=sys.stderr)
        return 0 if outcome == "done" else INCOMPLETE


def _process(member: Member) -> Process:
    return member.kind, member.instance


def _shown(counts: Counter[str]) -> str:
    return ", ".join(f"{count} {what}" for what, count in counts.items() if count) or "nothing"
