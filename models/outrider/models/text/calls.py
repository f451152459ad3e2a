"""Which way of writing calls of functions a chat template shows."""

from __future__ import annotations


def shown_format(template: str | None) -> str | None:
    """Name of the format of calls (`outrider.wire.calls`) that a template shows; None where it shows none of them.

    Qwen's Coder models write XML between the tags of Hermes: their templates do not speak of ``arguments`` in JSON.
    """
    source = (template or "").replace('\\"', '"')
    if "<tool_call>" in source and '"arguments": ' in source:
        return "hermes"
    if '"parameters": ' in source and '"name": ' in source:
        return "llama3"
    return None
