"""Versions of local drafters: read from the mesh's store, loaded beside the steps, and changed between two of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

import msgspec
from outrider.engine.decode.engine import Engine
from outrider.engine.errors import SettingsError
from outrider.engine.logits.deep_threads import in_deep_thread
from outrider.engine.target import Target
from outrider.engine.worker import Inbox
from outrider.mesh.bus import Bucket, Bus
from outrider.mesh.errors import Unavailable
from outrider.mesh.telemetry import get_logger
from outrider.wire.drafters import BUCKET, DrafterRecord, DrafterState, record_entry

_EVERY_S = 1.0
LOADED, REFUSED, ROLLED_BACK = "loaded", "refused", "rolled back"

_log = get_logger("drafters")
_decode = msgspec.json.Decoder(DrafterRecord).decode


class DrafterVersions:
    """Follows the store of drafters' versions. Only in the event loop.

    A version that cannot be loaded is refused, and the one before goes on. Neither it nor one that the engine gave up
    is tried again before the record changes.

    Args:
        bus: connection to the store.
        target: loads drafters.
        engine: changes between them, in its own thread.
        inbox: inbox of that thread.
        refused: called with the name of each drafter whose version is refused.
    """

    def __init__(self, bus: Bus, target: Target, engine: Engine, inbox: Inbox, refused: Callable[[str], None]) -> None:
        self._bucket, self._target, self._engine, self._inbox = Bucket(bus, BUCKET), target, engine, inbox
        self._refused = refused
        self._state: tuple[int, int] | None = None
        self._done: dict[str, tuple[DrafterRecord, int, str]] = {}

    async def follow(self) -> None:
        """Applies the records until cancelled; those read last while the store is unavailable."""
        while True:
            try:
                state = await self._bucket.state()
                if state != self._state:
                    await self._apply_all()
                    self._state = state
            except Unavailable as error:
                _log.debug("versions of drafters cannot be read", why=error.message)
            await asyncio.sleep(_EVERY_S)

    async def _apply_all(self) -> None:
        prefix = record_entry(self._target.name, "", None)
        keys = [key for key in await self._bucket.keys() if key.startswith(prefix)]
        for key in keys:
            entry = await self._bucket.get(key)
            if entry is not None and (key not in self._done or self._done[key][1] != entry.revision):
                try:
                    record = _decode(entry.value)
                except msgspec.DecodeError as error:
                    _log.warning("a record of a drafter's versions cannot be read", key=key, why=str(error))
                    continue
                as_set = record.version is None and key not in self._done
                self._done[key] = record, entry.revision, LOADED if as_set else await self._apply(record)
        for key in self._done.keys() - keys:
            record, _, _ = self._done.pop(key)
            await self._apply(DrafterRecord(model=record.model, drafter=record.drafter, tenant=record.tenant))

    async def _apply(self, record: DrafterRecord) -> str:
        """Loads the version in use, and changes to it; says how that went."""
        version, name, tenant = record.version, record.drafter, record.tenant
        try:
            drafter = None
            if version is not None or tenant is None:
                model = None if version is None else version.model
                drafter = await asyncio.wrap_future(in_deep_thread(partial(self._target.drafter, name, model)))
            label = "" if version is None else version.name if tenant is None else f"{tenant}/{version.name}"
            swap = partial(self._engine.swap, name, drafter, tenant=tenant, version=label, judged=record.judged)
            await asyncio.wrap_future(self._inbox.call(swap))
        except Exception as error:
            why = str(error) if isinstance(error, SettingsError) else f"{type(error).__name__}: {error}"
            _log.warning("a version of a drafter is refused", drafter=name, tenant=tenant, why=why)
            self._refused(name)
            return f"{REFUSED}: {why}"
        return LOADED

    def status(self) -> list[DrafterState]:
        """How each record was applied, for the registry."""
        return [self._status(*done) for done in self._done.values()]

    def _status(self, record: DrafterRecord, revision: int, state: str) -> DrafterState:
        group, guessing = (record.drafter, record.tenant), self._engine.guessing
        if (fallen := guessing.fallen.get(group)) is not None:
            state = f"{ROLLED_BACK}: {fallen[1]}"
        return DrafterState(*group, revision, guessing.runs(*group) or "", state)
