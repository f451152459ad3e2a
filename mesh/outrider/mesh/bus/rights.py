"""What a user of the broker may publish and subscribe to, and what stored messages and values need of JetStream."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

_API = "$JS.API"
_CONSUMING = ("CONSUMER.CREATE", "CONSUMER.INFO", "CONSUMER.MSG.NEXT")
SCRATCH = "outrider.scratch"
"""The subjects of streams that a journal creates to see whether JetStream has room."""


class Rights(NamedTuple):
    """Subjects, with wildcards, that a user may publish and subscribe to; all others are forbidden."""

    publish: frozenset[str] = frozenset()
    subscribe: frozenset[str] = frozenset()

    def __or__(self, other: Rights) -> Rights:
        """What either may do."""
        return Rights(self.publish | other.publish, self.subscribe | other.subscribe)


def covers(pattern: str, subject: str) -> bool:
    """Whether the broker counts all of ``subject`` as a part of ``pattern``; both may have wildcards."""
    wanted, given = pattern.split("."), subject.split(".")
    for place, part in enumerate(wanted):
        if part == ">":
            return place < len(given)
        if place >= len(given) or given[place] == ">" or part not in ("*", given[place]):
            return False
    return len(wanted) == len(given)


def minimal(subjects: Iterable[str]) -> list[str]:
    """``subjects`` in order, without those that others of them cover."""
    ordered = sorted(set(subjects))
    return [each for each in ordered if not any(other != each and covers(other, each) for other in ordered)]


def publishing(*subjects: str) -> Rights:
    """The right to publish on ``subjects``."""
    return Rights(publish=frozenset(subjects))


def subscribing(*subjects: str) -> Rights:
    """The right to subscribe to ``subjects``."""
    return Rights(subscribe=frozenset(subjects))


def reading(bucket: str) -> Rights:
    """What the reading methods of a `Bucket` need, beside an inbox."""
    return _api(f"KV_{bucket}", ("STREAM.INFO", "STREAM.MSG.GET"))


def opening(bucket: str) -> Rights:
    """What `Bucket.open` and reading need, beside an inbox."""
    return reading(bucket) | _api(f"KV_{bucket}", ("STREAM.CREATE", "STREAM.UPDATE"))


def wiping(bucket: str) -> Rights:
    """What `Bucket.wipe` needs, beside an inbox."""
    stream = f"KV_{bucket}"
    calls = ("STREAM.INFO", "STREAM.PURGE", "STREAM.MSG.DELETE", "CONSUMER.CREATE")
    return _api(stream, calls) | _api(f"{stream}.>", _CONSUMING)


def writing(bucket: str) -> Rights:
    """What all methods of a `Bucket` need, beside an inbox."""
    return opening(bucket) | wiping(bucket) | publishing(f"$KV.{bucket}.>")


def journals(*subjects: str) -> Rights:
    """What all methods of a `Journal` of ``subjects`` need, beside an inbox.

    JetStream names no stream by its beginning, and a journal creates streams of numbered names: so any stream may be
    created, changed and read.
    """
    calls = ("STREAM.INFO", "STREAM.CREATE", "STREAM.UPDATE", "STREAM.PURGE", "STREAM.DELETE", "CONSUMER.CREATE")
    streams = _api("*", (*calls, "STREAM.MSG.DELETE"))
    consumers = _api("*.>", _CONSUMING)
    return streams | consumers | publishing(f"{_API}.STREAM.LIST", f"{SCRATCH}.*", *subjects)


def _api(name: str, calls: Iterable[str]) -> Rights:
    return publishing(*(f"{_API}.{call}.{name}" for call in calls))
