"""Reads `/metrics` of services, summed over the processes of a kind."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import httpx
from outrider.measure.planning.profile import ProfileError
from prometheus_client.parser import text_string_to_metric_families

MARKS = {
    "verifier": "outrider_verifier_steps_total",
    "gateway": "outrider_gateway_streams",
    "tokenizer": "outrider_tokenizer_encoded_tokens_total",
}
"""For each kind of service a metric that only it has."""


PROCESSES = "processes"
"""Name under which a snapshot has the number of processes of a kind."""


class Snapshot:
    """Values of one moment by kind of service, metric and, where it has one, the label ``part`` or ``rows``."""

    def __init__(self, values: dict[tuple[str, str, str], float]) -> None:
        self._values = values

    def __sub__(self, before: Snapshot) -> Snapshot:
        """What was added since ``before``."""
        return Snapshot({key: value - before._values.get(key, 0.0) for key, value in self._values.items()})

    def total(self, kind: str, name: str) -> float:
        """Sum of ``outrider_<name>`` over all processes and labels; 0 if none has it."""
        return sum(value for (of, metric, _), value in self._values.items() if (of, metric) == (kind, name))

    def parts(self, kind: str, name: str) -> dict[str, float]:
        """Sums by the label ``part`` or ``rows``."""
        found = {part: value for (of, metric, part), value in self._values.items() if (of, metric) == (kind, name)}
        return dict(sorted(found.items()))

    def has(self, kind: str, name: str) -> bool:
        """Whether a process of ``kind`` shows the metric."""
        return any((of, metric) == (kind, name) for of, metric, _ in self._values)


async def scrape(client: httpx.AsyncClient, urls: Iterable[str]) -> Snapshot:
    """The present values of all ``urls``.

    Raises:
        ProfileError: one does not answer, or is none of a gateway, a tokenizer or a verifier.
    """
    values: dict[tuple[str, str, str], float] = defaultdict(float)
    for url in urls:
        try:
            text = (await client.get(url)).raise_for_status().text
        except httpx.HTTPError as error:
            why = str(error).partition("\n")[0] or type(error).__name__
            raise ProfileError(f"cannot read metrics from {url}: {why}") from error
        kind = next((kind for kind, mark in MARKS.items() if mark in text), "")
        if not kind:
            raise ProfileError(f"{url} shows no metrics of a gateway, a tokenizer or a verifier")
        values[kind, PROCESSES, ""] += 1
        for family in text_string_to_metric_families(text):
            for name, labels, value, *_ in family.samples:
                values[kind, name.removeprefix("outrider_"), labels.get("part") or labels.get("rows", "")] += value
    return Snapshot(dict(values))
