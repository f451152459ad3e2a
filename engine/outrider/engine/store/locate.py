"""Finds a model's files, and brings them here if need be."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from outrider.engine.errors import ModelError
from outrider.engine.models import pocket
from outrider.engine.store.integrity import Integrity, check
from outrider.engine.store.names import FORM, POCKET, ModelName, is_path
from outrider.engine.store.progress import Watch, unwatched

Shipped = Literal["target", "draft", "medusa"]
"""One of the models that ``pocket`` may mean."""


def locate(
    model: str,
    shipped: Shipped = "target",
    *,
    text_only: bool = False,
    watch: Watch = unwatched,
) -> Path:
    """The directory or the GGUF file of a model; brings a model of the Hub into huggingface_hub's cache.

    A model of the Hub whose revision is a commit, and which is wholly in the cache, needs no network.

    Args:
        model: ``pocket``, a path, or a name of the Hub, ``org/repository[:file][@revision]``.
        shipped: the model that ``pocket`` means.
        text_only: leave the weights out, for those who need the tokenizer only. A GGUF file has all in one.
        watch: is told how far a download is.

    Raises:
        ModelError: there is no such model, it is not for this user, or it cannot be fetched.
    """
    if model == POCKET:
        return pocket.directory(shipped)
    if not is_path(model):
        return _bring(ModelName.parse(model), text_only, watch)
    path = Path(model)
    if not path.exists():
        raise ModelError(f"there is no model in {model}; a name of the Hub is written {FORM}")
    return path


def obtain(
    model: str,
    integrity: Integrity,
    shipped: Shipped = "target",
    *,
    text_only: bool = False,
    watch: Watch = unwatched,
) -> Path:
    """Locates a model and checks that it is as it was: `locate`, then `check`. Raises what they raise."""
    place = locate(model, shipped, text_only=text_only, watch=watch)
    check(place, integrity, text_only=text_only)
    return place


def pin(model: str, watch: Watch = unwatched) -> str:
    """``model`` with the commit of its revision, after its files were brought here; a path or ``pocket`` as it is.

    Raises:
        ModelError: as `locate`.
    """
    if model == POCKET or is_path(model):
        return model
    name = ModelName.parse(model)
    _bring(name, False, watch)
    from outrider.engine.store.remote import commit_of

    return str(name.at(commit_of(name)))


def _bring(name: ModelName, text_only: bool, watch: Watch) -> Path:
    try:
        from outrider.engine.store.remote import bring
    except ModuleNotFoundError as error:
        raise ModelError(f"models of the Hub need {error.name}: pip install 'outrider[tokenizer]'") from None
    return bring(name, text_only, watch)
