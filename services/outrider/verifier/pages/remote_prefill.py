"""Prefill/decode disaggregation: another verifier computes the pages of a prompt, if that pays.

If the other verifier fails (gone, stalled, busy, wrong data), the pages are computed here.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import grpc
from outrider.mesh.registry import Member, Registry, State
from outrider.v1 import kvcache_pb2 as pb
from outrider.verifier.pages.cached_pages import Prompt, WantedPages
from outrider.verifier.pages.metrics import GIVERS, REMOTE_PREFILL_SECONDS, REMOTE_PREFILLS
from outrider.verifier.pages.peers import Peer, reach
from outrider.verifier.pages.receiver import BadPage, PageArrivals, Receiver
from outrider.verifier.pages.transfer import TransferTime
from outrider.wire.ids import pack_ids
from outrider.wire.pages import page_key
from outrider.wire.residency import Residency, may_hold

Role = Literal["prefill", "decode", "both"]

_RANKS: dict[str, int] = {"decode": 0, "both": 1, "prefill": 2}


def trade(one: str, other: str) -> bool:
    """Whether one of two verifiers of these roles hands pages to the other; `gives` says which one."""
    return one in _RANKS and other in _RANKS and one != other


def gives(role: str, taker: str) -> bool:
    """Whether a verifier of ``role`` computes prompts for one of role ``taker``: the role nearer to prefill gives."""
    return trade(role, taker) and _RANKS[role] > _RANKS[taker]


class PrefillPeers:
    """The verifiers in the registry that may be asked for pages. Only in the event loop.

    Args:
        registry: registry of verifiers.
        role: this verifier's role.
        sockets: whether Unix sockets are used.
        found: called when there is a verifier to give pages to or take pages from.
    """

    def __init__(self, registry: Registry, role: str, sockets: bool, found: Callable[[], None]) -> None:
        self._registry, self._role, self._sockets, self._found = registry, role, sockets, found
        self._peers: dict[str, Peer] = {}
        self._prompts: Counter[str] = Counter()
        self._pages = ""

    def start(self) -> None:
        """Starts to follow the registry."""
        self._registry.on_change("verifier", self._on_members)
        self._on_members(self._registry.members("verifier"))

    def open(self, fingerprint: bytes) -> None:
        """Takes only pages of this fingerprint."""
        self._pages = fingerprint.hex()
        self._on_members(self._registry.members("verifier"))

    def __len__(self) -> int:
        return len(self._peers)

    def choose(self, residency: Residency) -> Peer | None:
        """The verifier of a ``residency`` with the least load that may be asked now, among equals the fastest.

        None if there is none.
        """
        now = time.monotonic()
        there = [peer for peer in self._peers.values() if may_hold(peer.member.status, residency)]
        available = [peer for peer in there if peer.paused_until <= now]
        return min(available, key=lambda peer: self._load(peer.member), default=None)

    def ask(self, peer: Peer, prompts: int) -> None:
        """Adds ``prompts`` (negative to subtract) to the prompts that ``peer`` computes for this verifier."""
        self._prompts[peer.member.instance] += prompts

    def _load(self, member: Member) -> tuple[int, float]:
        load = max(int(member.status.get("load", 0)), self._prompts[member.instance])
        return load, -_speed(member)

    def _on_members(self, members: list[Member]) -> None:
        if any(trade(self._role, str(member.status.get("role"))) for member in members):
            self._found()
        available = {member.instance: member for member in members if self._may_be_asked(member)}
        peers = {name: peer for name, peer in self._peers.items() if name in available}
        peers = {name: peer for name, peer in peers.items() if peer.member.address == available[name].address}
        for name, member in available.items():
            if name in peers:
                peers[name].member = member
            else:
                peers[name] = reach(member, self._sockets)
        self._peers = peers
        GIVERS.set(len(peers))

    def _may_be_asked(self, member: Member) -> bool:
        status = member.status
        same = bool(self._pages) and status.get("pages_of") == self._pages
        return member.state is State.READY and same and gives(str(status.get("role")), self._role)


@dataclass(frozen=True, slots=True)
class RemotePrefillTerms:
    """Terms of a remote prefill.

    Attributes:
        mode: ``auto`` asks if that costs less than computing here, ``always`` asks if there is a verifier to ask.
        deadline_s: most seconds that a sequence waits.
        page_size: tokens a page.
        page_bytes: bytes a page.
    """

    mode: Literal["auto", "always", "off"]
    deadline_s: float
    page_size: int
    page_bytes: int

    def patience(self, prompt: Prompt) -> float:
        """Most seconds to wait; except with ``always``, no longer than computing here takes."""
        return self.deadline_s if self.mode == "always" else min(self.deadline_s, prompt.seconds)


class RemotePrefill:
    """Asks other verifiers to compute pages. Only in the event loop, except `useful`."""

    def __init__(self, prefill_peers: PrefillPeers, receiver: Receiver, terms: RemotePrefillTerms) -> None:
        self._prefill_peers, self._receiver, self._terms = prefill_peers, receiver, terms
        self._transfer: defaultdict[str, TransferTime] = defaultdict(TransferTime)
        self._fingerprint = b""

    def open(self, fingerprint: bytes) -> None:
        """Starts to ask, for pages of this fingerprint."""
        self._fingerprint = fingerprint
        self._prefill_peers.open(fingerprint)

    def useful(self, wanted: WantedPages) -> bool:
        """Whether there may be a verifier to ask."""
        return self._terms.mode != "off" and wanted.prompt is not None and len(self._prefill_peers) > 0

    async def run(self, wanted: WantedPages, arrivals: PageArrivals) -> None:
        """Fetches the pages that ``arrivals`` still lacks from another verifier, if that pays."""
        prompt, lacking = wanted.prompt, len(wanted.hashes) - wanted.present - arrivals.pages
        if prompt is None or not lacking or not self.useful(wanted):
            return
        if (peer := self._prefill_peers.choose(wanted.residency)) is None:
            return
        prompt = replace(prompt, seconds=prompt.seconds * lacking / (lacking + arrivals.pages))
        began, outcome, arrivals.source = time.monotonic(), "cancelled", "peer"
        self._prefill_peers.ask(peer, 1)
        try:
            async with asyncio.timeout(self._terms.patience(prompt)):
                outcome = await self._ask(peer, wanted, prompt, arrivals)
        except TimeoutError:
            peer.delay()
            outcome = "late"
        finally:
            self._prefill_peers.ask(peer, -1)
            REMOTE_PREFILLS.labels(outcome).inc()
            REMOTE_PREFILL_SECONDS.inc(time.monotonic() - began)

    async def _ask(self, peer: Peer, wanted: WantedPages, prompt: Prompt, arrivals: PageArrivals) -> str:
        first = wanted.present + arrivals.pages
        if not self._pays(peer, prompt, len(wanted.hashes) - first):
            return "slower"
        request, before, began = self._request(wanted, prompt, first), arrivals.pages, time.monotonic()
        arrived_at = [began]

        def add(pages: list[bytes]) -> None:
            if arrivals.pages == before:
                arrived_at[0] = time.monotonic()
            arrivals.add(pages)

        try:
            await self._receiver.receive(peer, request, add)
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED:
                return "busy"
            peer.fail(error.code().name)
            return "failed"
        except BadPage as error:
            peer.fail(str(error))
            return "failed"
        peer.answered()
        if size := (arrivals.pages - before) * self._terms.page_bytes:
            self._transfer[peer.member.instance].measured(size, arrived_at[0] - began, time.monotonic() - arrived_at[0])
        return "hit"

    def _request(self, wanted: WantedPages, prompt: Prompt, first: int) -> pb.FetchRequest:
        within_ms = max(round(self._terms.patience(prompt) * 1e3), 1)
        prefill = pb.Prefill(
            tenant=wanted.tenant,
            tokens=pack_ids(prompt.tokens),
            first=first,
            priority=prompt.priority,
            weight=prompt.weight,
            within_ms=within_ms,
            residency=sorted(wanted.residency or ()),
            cache_salt=prompt.cache_salt,
        )
        keys = [page_key(self._fingerprint, wanted.tenant, digest) for digest in wanted.hashes[first:]]
        return pb.FetchRequest(keys=keys, prefill=prefill)

    def _pays(self, peer: Peer, prompt: Prompt, pages: int) -> bool:
        if self._terms.mode == "always":
            return True
        measured = self._transfer[peer.member.instance].seconds(pages * self._terms.page_bytes)
        return max(measured, pages * self._terms.page_size / _speed(peer.member)) < prompt.seconds


def _speed(member: Member) -> float:
    """The verifier's announced speed, in prompt tokens a second."""
    return max(float(member.status.get("prefill_tokens_per_s", 0)), 1.0)
