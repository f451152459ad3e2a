"""What an operator may set on a tokenizer."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta
from outrider.mesh.config import Settings


class TokenizerSettings(Settings, kw_only=True, frozen=True):
    """Settings of the tokenizer, in the configuration's ``[tokenizer]`` table."""

    model: Annotated[str, Meta(description="directory with tokenizer.json, or `pocket` for the shipped one")] = "pocket"
    served_name: Annotated[str, Meta(description="name that requests use; the directory's name when empty")] = ""
