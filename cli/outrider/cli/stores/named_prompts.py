"""Writes named prompts into the mesh's key-value store, for verifiers to compute and keep."""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
from outrider.cli.stores.store import print_table, run_on_bus
from outrider.mesh.bus import Bucket, Bus
from outrider.mesh.config.fields import nearest
from outrider.mesh.errors import ConfigError
from outrider.wire import tenants
from outrider.wire.prompts import BUCKET, MOST_BYTES, MOST_PROMPTS, NAME, NamedPrompt, prompt_entry


class _Message(msgspec.Struct):
    role: str
    content: str | None = None


def run(work: Callable[[StoredPrompts], Coroutine[Any, Any, None]], nats_url: str | None, config: Path | None) -> int:
    """Runs ``work`` on the stored prompts; returns the exit code."""

    async def on_bus(bus: Bus) -> int:
        prompts, known = Bucket(bus, BUCKET), Bucket(bus, tenants.BUCKET)
        await prompts.open()
        await known.open()
        await work(StoredPrompts(prompts, known))
        return 0

    return run_on_bus("outrider prompts", on_bus, nats_url, config)


class StoredPrompts:
    """The stored prompts; each method runs one command and prints its result."""

    def __init__(self, bucket: Bucket, known_tenants: Bucket) -> None:
        self._bucket, self._tenants = bucket, known_tenants

    async def put(self, name: str, tenant: str, model: str | None, text: str, chat: bool) -> None:
        """Stores a prompt; replaces the prompt of the same name."""
        for kind, value in (("prompt", name), ("tenant", tenant)):
            if not NAME.fullmatch(value):
                raise ConfigError(f"{value!r} is no name for a {kind}: 1 to 64 letters, digits, - and _")
        messages = _messages(text) if chat else None
        prompt = NamedPrompt(
            name=name,
            tenant=tenant,
            created=time.time(),
            model=model,
            text=None if chat else text,
            messages=messages,
            residency=await self._residency(tenant),
        )
        data = msgspec.json.encode(prompt)
        if not text or len(data) > MOST_BYTES:
            raise ConfigError(f"the prompt takes {len(data)} bytes; it must not be empty, and at most {MOST_BYTES}")
        entry, others = prompt_entry(tenant, name), prompt_entry(tenant, "")
        if await self._bucket.put_below_limit(entry, data, others, MOST_PROMPTS) is None:
            raise ConfigError(f"{tenant} has {MOST_PROMPTS} prompts already, the most that it may keep: evict one")
        print(f"The prompt {name} of {tenant} is stored: verifiers compute it within seconds.")

    async def _residency(self, tenant: str) -> tuple[str, ...] | None:
        entry = await self._tenants.get(tenants.tenant_entry(tenant))
        return None if entry is None else msgspec.json.decode(entry.value, type=tenants.Tenant).limits.residency

    async def list_all(self, tenant: str) -> None:
        """Prints all prompts of a tenant."""
        prompts = [await self._prompt(name, tenant) for name in await self._names(tenant)]
        print_table(("name", "model", "bytes", "created"), [_row(prompt) for prompt in prompts])

    async def show(self, name: str, tenant: str) -> None:
        """Prints one prompt."""
        prompt = await self._prompt(name, tenant)
        if prompt.messages is not None:
            print(msgspec.json.format(msgspec.json.encode(prompt.messages), indent=2).decode())
        else:
            print(prompt.text)

    async def evict(self, name: str, tenant: str) -> None:
        """Removes one prompt."""
        await self._prompt(name, tenant)
        await self._bucket.wipe(prompt_entry(tenant, name))
        print(f"The prompt {name} of {tenant} is gone: verifiers drop it within seconds.")

    async def _prompt(self, name: str, tenant: str) -> NamedPrompt:
        valid = NAME.fullmatch(name) and tenants.NAME.fullmatch(tenant)
        entry = await self._bucket.get(prompt_entry(tenant, name)) if valid else None
        if entry is None:
            near = nearest(name, await self._names(tenant))
            raise ConfigError(f"{tenant} has no prompt {name}{near}: `outrider prompts list` shows all")
        return msgspec.json.decode(entry.value, type=NamedPrompt)

    async def _names(self, tenant: str) -> list[str]:
        prefix = prompt_entry(tenant, "")
        return [key.removeprefix(prefix) for key in await self._bucket.keys() if key.startswith(prefix)]


def _messages(text: str) -> list[dict[str, Any]]:
    try:
        messages = msgspec.json.decode(text, type=list[_Message])
    except msgspec.DecodeError as error:
        raise ConfigError(f"the file holds no JSON array of messages with a role and a content: {error}") from None
    return [msgspec.structs.asdict(message) for message in messages]


def _row(prompt: NamedPrompt) -> tuple[str, str, str, str]:
    created = datetime.fromtimestamp(prompt.created, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    return prompt.name, prompt.model or "any", str(len(msgspec.json.encode(prompt))), created
