"""Settings of the proposer."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta
from outrider.mesh.config import Settings


class ProposerSettings(Settings, kw_only=True, frozen=True):
    """Settings of the proposer, in the configuration's ``[proposer]`` table."""

    drafter: Annotated[str, Meta(description="drafter to run, by plug-in name")] = "model"
    model: Annotated[
        str,
        Meta(
            description="directory or GGUF file of the draft model or head, `pocket` for the shipped draft model, or a "
            "name of the Hugging Face Hub: org/repository[:file][@revision]"
        ),
    ] = "pocket"
    target: Annotated[
        str, Meta(description="the target, named as `model`, for its tokenizer; the draft model's own when empty")
    ] = ""
    integrity: Annotated[
        Literal["off", "size", "full"],
        Meta(
            description="how a model's files are compared with those of its first load: not, by sizes and times, "
            "or by SHA-256"
        ),
    ] = "size"
    dtype: Annotated[
        Literal["auto", "float32", "bfloat16", "float16"],
        Meta(description="of the weights; auto: the checkpoint's, or float32 if the CPU lacks that type"),
    ] = "auto"
    device: Annotated[str, Meta(description="torch device: cpu, cuda or cuda:N")] = "cpu"
    threads: Annotated[
        int, Meta(ge=0, description="CPU threads of the model; 0: OMP_NUM_THREADS, or one for each core of the process")
    ] = 1
    keep_s: Annotated[
        float,
        Meta(ge=1, le=31536000, description="most seconds for which learnt answers are kept after their last use"),
    ] = 3600.0
    options: Annotated[dict[str, Any], Meta(description="settings of the drafter")] = {}
