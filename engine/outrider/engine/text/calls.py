"""Recognizes the format of function calls that a chat template uses."""

from __future__ import annotations


def call_format_of(template: str | None) -> str | None:
    """Name of the format of calls (`outrider.wire.calls`) that a template shows; None for an unknown format.

    Templates of Qwen's Coder models have the tags of Hermes around XML, without ``arguments`` in JSON.
    """
    source = (template or "").replace('\\"', '"')
    if "<tool_call>" in source and '"arguments": ' in source:
        return "hermes"
    if '"parameters": ' in source and '"name": ' in source:
        return "llama3"
    return None
