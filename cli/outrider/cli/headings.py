"""The order of the commands in the help, and the headings above them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from typer.core import TyperGroup, TyperOption

HEADINGS: Mapping[str, tuple[str, ...]] = {
    "Serve on this machine": ("up", "ps", "logs", "stop", "doctor"),
    "Ask": ("complete", "chat", "run-batch"),
    "Models and drafters": ("models", "drafter", "prompts"),
    "Operate": ("config", "tenants", "keys", "certs", "bus", "credentials", "audit"),
    "Measure": ("bench", "load", "trace", "trace-steps", "profile", "plan"),
}

_display_type = TyperOption.display_type_rich


def _type_of_value(option: TyperOption, ctx: Any) -> str | None:
    """What the help says of an option's value; "" for a flag, which takes none."""
    return "" if option.is_flag else _display_type(option, ctx=ctx)


TyperOption.display_type_rich = _type_of_value  # type: ignore[assignment, method-assign]


class Grouped(TyperGroup):
    """Commands in the order of `HEADINGS`, each below its heading; others are at the end."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for heading, names in HEADINGS.items():
            for name in names:
                if command := self.commands.get(name):
                    command.rich_help_panel = heading  # type: ignore[attr-defined]

    def list_commands(self, ctx: Any) -> list[str]:
        """Names of the commands, in their order."""
        order = [name for names in HEADINGS.values() for name in names]
        return sorted(self.commands, key=lambda name: order.index(name) if name in order else len(order))
