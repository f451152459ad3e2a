"""Says which drafter reads a model that guesses: a draft model, a head, or Medusa heads."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from outrider.engine.models.fields import Fields
from outrider.engine.models.gguf.header import GgufFile, is_gguf

Drafter = Literal["model", "head", "medusa"]
_ARCHITECTURES = ("eagle3", "dflash")
"""Those of heads in GGUF files."""
_MARKS = {
    "draft_vocab_size",
    "eagle_config",
    "eagle_aux_hidden_state_layer_ids",
    "dflash_config",
    "target_layer_ids",
    "speculators_config",
    "speculators_model_type",
}
"""Fields of the config.json of a head, and of no whole model."""


def drafter_of(place: Path) -> Drafter:
    """The name of the drafter that reads the model at ``place``, a directory or a GGUF file.

    Raises:
        ModelError: there is no config.json and no GGUF file, or it is damaged.
    """
    if is_gguf(place):
        architecture = GgufFile.open(place).metadata.text("general.architecture")
        return "head" if architecture in _ARCHITECTURES else "model"
    config = Fields.read(place / "config.json").values
    if "medusa_num_heads" in config:
        return "medusa"
    return "head" if config.keys() & _MARKS or "eagle" in str(config.get("architectures")).lower() else "model"
