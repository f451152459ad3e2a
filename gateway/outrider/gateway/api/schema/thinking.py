"""Parameters of thoughts: OpenAI's effort, and the switches of other servers, as variables of a model's template."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta
from outrider.wire.bounds import integers_from

Effort = Annotated[
    Literal["none", "minimal", "low", "medium", "high", "xhigh"],
    Meta(description='"none", "minimal", "low", "medium", "high" or "xhigh"'),
]
ThoughtBudget = Annotated[int, integers_from(0)]


class Thinking(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``thinking``: whether to think, and most tokens of the thought."""

    type: Literal["enabled", "disabled"]
    budget_tokens: ThoughtBudget | None = None


def template_variables(
    given: Mapping[str, Any] | None, effort: str | None, enabled: bool | None, thinking: Thinking | None = None
) -> dict[str, Any]:
    """The ``given`` variables of a template, over those by which templates read effort and switch."""
    variables: dict[str, Any] = {}
    if enabled is None and thinking is not None:
        enabled = thinking.type == "enabled"
    if effort is not None:
        variables["reasoning_effort"] = effort
        enabled = effort != "none" if enabled is None else enabled
    if enabled is not None:
        variables |= {"enable_thinking": enabled, "thinking": enabled}
    return variables | dict(given or {})
