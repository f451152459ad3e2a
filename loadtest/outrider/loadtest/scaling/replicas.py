"""The replicas that KEDA and a HorizontalPodAutoscaler ask for.

The rules are those of https://kubernetes.io/docs/tasks/run-application/horizontal-pod-autoscale and, for none and one,
of https://keda.sh/docs/latest/reference/scaledobject-spec. The sums are given: more pods do not change them here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil, inf

import msgspec
from outrider.loadtest.scaling.scalers import Scaler, Trigger

_TOLERANCE = 0.1
"""Share of the target by which a sum may be off without a change; the HorizontalPodAutoscaler's default."""

Sums = Mapping[str, float]
"""What the query of each trigger says at one time, by the trigger's name."""


class Moment(msgspec.Struct, frozen=True):
    """Sums at a time, what each trigger asks for, and the number of pods."""

    at: float
    sums: Sums
    asked: dict[str, int]
    pods: int


def replay(scaler: Scaler, samples: Sequence[tuple[float, Sums]], pods: int) -> list[Moment]:
    """The numbers of pods for ``samples`` of (unix time, sums), which begin with ``pods`` of them."""
    moments: list[Moment] = []
    course, wishes = [(-inf, pods)], list[tuple[float, int]]()
    active_at = samples[0][0] if samples else 0.0
    for at, sums in samples:
        active = any(sums[each.name] > each.activation for each in scaler.triggers)
        active_at = at if active else active_at
        asked = {each.name: _asked(each, sums[each.name], course[-1][1]) for each in scaler.triggers}
        wishes.append((at, max(scaler.least, 1, min(max(asked.values()), scaler.most))))
        if scaler.least == 0 and not active and (at - active_at >= scaler.cooldown_s or not course[-1][1]):
            course.append((at, 0))
        else:
            course.append((at, _next(scaler, wishes, course)))
        moments.append(Moment(at, sums, asked, course[-1][1]))
    return moments


def _asked(trigger: Trigger, total: float, pods: int) -> int:
    """The pods whose parts of ``total`` are at most the target; ``pods`` if their parts are near the target."""
    if pods and abs(total / (trigger.target * pods) - 1) <= _TOLERANCE:
        return pods
    return ceil(total / trigger.target)


def _next(scaler: Scaler, wishes: Sequence[tuple[float, int]], course: Sequence[tuple[float, int]]) -> int:
    """The pods after the last of ``wishes``: one after none, else at the allowed pace."""
    at, pods = wishes[-1][0], course[-1][1]
    if pods == 0:
        return 1
    lowest = min(wish for time, wish in wishes if time >= at - scaler.up.window_s)
    highest = max(wish for time, wish in wishes if time >= at - scaler.down.window_s)
    if lowest > pods:
        return max(pods, min(lowest, _pods_at(course, at - scaler.up.period_s) + scaler.up.pods))
    if highest < pods:
        return min(pods, max(highest, _pods_at(course, at - scaler.down.period_s) - scaler.down.pods))
    return pods


def _pods_at(course: Sequence[tuple[float, int]], at: float) -> int:
    return next(pods for time, pods in reversed(course) if time <= at)
