"""Named prompts, written into the mesh's key-value store for verifiers to compute and keep."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
from outrider.cli.settings import WIDTH, effective
from outrider.mesh.bus import Bucket, Bus
from outrider.mesh.config.fields import nearest
from outrider.mesh.errors import ConfigError, OutriderError
from outrider.mesh.telemetry import configure_logs
from outrider.wire import tenants
from outrider.wire.prompts import BUCKET, MOST_BYTES, MOST_PROMPTS, NAME, NamedPrompt, prompt_entry
from rich.console import Console
from rich.markup import escape
from rich.table import Table

FAILED = 3
_WAIT_S = 2.0


class _Message(msgspec.Struct):
    role: str
    content: str | None = None


def run(work: Callable[[Shelf], Coroutine[Any, Any, None]], nats_url: str | None, config: Path | None) -> int:
    """Does ``work`` with the prompts; the exit code."""
    configure_logs("error", "console")
    try:
        url = nats_url or effective("gateway", config, {})["nats_url"].value
        asyncio.run(_with_shelf(work, url))
    except ConfigError as error:
        print(f"outrider: {error}", file=sys.stderr)
        return error.exit_code
    except OutriderError as error:
        print(f"outrider: {error.message}", file=sys.stderr)
        return FAILED
    return 0


async def _with_shelf(work: Callable[[Shelf], Coroutine[Any, Any, None]], url: str) -> None:
    bus = Bus()
    try:
        await bus.connect(url, "outrider prompts", _WAIT_S)
        bucket = Bucket(bus, BUCKET)
        await bucket.open()
        await work(Shelf(bucket))
    finally:
        await bus.close()


class Shelf:
    """What is stored; each method does one command and prints what came of it."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket

    async def put(self, name: str, tenant: str, model: str | None, text: str, chat: bool) -> None:
        """Stores a prompt, in place of what has its name."""
        for kind, given in (("prompt", name), ("tenant", tenant)):
            if not NAME.fullmatch(given):
                raise ConfigError(f"{given!r} is no name for a {kind}: 1 to 64 letters, digits, - and _")
        messages = _messages(text) if chat else None
        prompt = NamedPrompt(
            name=name,
            tenant=tenant,
            created=time.time(),
            model=model,
            text=None if chat else text,
            messages=messages,
        )
        data, names = msgspec.json.encode(prompt), await self._names(tenant)
        if not text or len(data) > MOST_BYTES:
            raise ConfigError(f"the prompt takes {len(data)} bytes: it has to hold something, and at most {MOST_BYTES}")
        if name not in names and len(names) >= MOST_PROMPTS:
            raise ConfigError(f"{tenant} has {MOST_PROMPTS} prompts already, the most that are kept: evict one")
        await self._bucket.put(prompt_entry(tenant, name), data)
        print(f"The prompt {name} of {tenant} is stored: verifiers compute it within seconds.")

    async def list_all(self, tenant: str) -> None:
        """Prints all prompts of a tenant."""
        prompts = [await self._prompt(name, tenant) for name in await self._names(tenant)]
        _print(("name", "model", "bytes", "created"), [_row(prompt) for prompt in prompts])

    async def show(self, name: str, tenant: str) -> None:
        """Prints one."""
        prompt = await self._prompt(name, tenant)
        if prompt.messages is not None:
            print(msgspec.json.format(msgspec.json.encode(prompt.messages), indent=2).decode())
        else:
            print(prompt.text)

    async def evict(self, name: str, tenant: str) -> None:
        """Forgets one."""
        await self._prompt(name, tenant)
        await self._bucket.forget(prompt_entry(tenant, name))
        print(f"The prompt {name} of {tenant} is gone: verifiers let go of it within seconds.")

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


def _print(columns: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    table = Table(*columns, box=None, pad_edge=False)
    for row in rows:
        table.add_row(*map(escape, row))
    Console(width=None if sys.stdout.isatty() else WIDTH).print(table)
