"""What a proposer's drafter is made for: the target's vocabulary and configuration, and the drafter's own model."""

from __future__ import annotations

from typing import Any

from outrider.engine import store
from outrider.engine.models.config import ModelConfig
from outrider.engine.speculation import DrafterContext
from outrider.engine.speculation.drafters.drafter import traits_of
from outrider.engine.text import Tokenizer
from outrider.mesh.telemetry import get_logger
from outrider.proposer.settings import ProposerSettings

_log = get_logger("proposer")


def drafter_context(settings: ProposerSettings) -> DrafterContext:
    """What the drafter is made for.

    Raises:
        ModelError: the target or the draft model is not there, was changed, or is not supported.
        TextError: the target has no tokenizer that can be read.
    """
    model = store.obtain(settings.model, settings.integrity, "draft", watch=store.logged(_log))
    target = store.obtain(
        settings.target or settings.model, settings.integrity, text_only=True, watch=store.logged(_log)
    )
    vocabulary = Tokenizer.load(target).fingerprint
    known = target.is_file() or (target / "config.json").is_file()
    config = ModelConfig.load(target if known else model)
    return DrafterContext(
        vocabulary,
        config.vocab_size,
        config.context_length,
        model,
        settings.device,
        settings.dtype,
        settings.options,
        config=config if known else None,
    )


def lacks_draft_model(settings: ProposerSettings, plugin: Any, context: DrafterContext) -> bool:
    """Whether the shipped draft model would guess for a target of another vocabulary."""
    drafts = settings.model == store.POCKET and traits_of(plugin).shipped == "draft"
    if not drafts or "vocabulary_map" in settings.options:
        return False
    return Tokenizer.load(store.locate(store.POCKET, "draft")).fingerprint != context.vocabulary
