"""Settings of the tokenizer."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta
from outrider.mesh.config import Settings


class TokenizerSettings(Settings, kw_only=True, frozen=True):
    """Settings of the tokenizer, in the configuration's ``[tokenizer]`` table."""

    model: Annotated[str, Meta(description="directory with tokenizer.json, or `pocket` for the shipped one")] = "pocket"
    served_name: Annotated[str, Meta(description="name that requests use; the directory's name when empty")] = ""
    calls: Annotated[
        Literal["auto", "hermes", "llama3"],
        Meta(description="format of the model's tool calls; auto: that of the chat template, else hermes"),
    ] = "auto"
