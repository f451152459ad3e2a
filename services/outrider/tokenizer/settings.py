"""Settings of the tokenizer."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta
from outrider.mesh.config import Settings


class TokenizerSettings(Settings, kw_only=True, frozen=True):
    """Settings of the tokenizer, in the configuration's ``[tokenizer]`` table."""

    model: Annotated[
        str,
        Meta(
            description="directory or GGUF file with the tokenizer, `pocket` for the shipped one, or a name of the "
            "Hugging Face Hub: org/repository[:file][@revision]"
        ),
    ] = "pocket"
    integrity: Annotated[
        Literal["off", "size", "full"],
        Meta(
            description="how a model's files are compared with those of its first load: not, by sizes and times, "
            "or by SHA-256"
        ),
    ] = "size"
    served_name: Annotated[
        str,
        Meta(
            description="name that requests use; when empty the name of the directory or file, or of the Hub's "
            "repository in full"
        ),
    ] = ""
    calls: Annotated[
        Literal[
            "auto",
            "hermes",
            "llama3",
            "pythonic",
            "mistral",
            "mistral_v11",
            "qwen3_coder",
            "glm45",
            "glm47",
            "deepseek_v3",
            "deepseek_v31",
            "deepseek_v32",
            "kimi_k2",
            "granite",
            "harmony",
        ],
        Meta(description="format of the model's tool calls; auto: that of the chat template, else hermes"),
    ] = "auto"
    reasoning: Annotated[
        Literal["auto", "off", "think", "mistral", "harmony", "granite"],
        Meta(
            description="marks of the thoughts in front of answers; auto: those of the chat template, off: thoughts "
            "are text of the answer"
        ),
    ] = "auto"
    reasoning_start: Annotated[
        str, Meta(description="text that begins a thought, with reasoning_end instead of the marks that have a name")
    ] = ""
    reasoning_end: Annotated[str, Meta(description="text that ends a thought")] = ""
    generation_config: Annotated[
        Literal["auto", "off"],
        Meta(
            description="auto: the sampling in the model's generation_config.json holds for requests that do not "
            "name a parameter; off: it has no effect"
        ),
    ] = "auto"
