"""The option by which drafters with weights of their own quantize them."""

from __future__ import annotations

from typing import Any

from outrider.engine.models.quantization import AT_LOAD
from outrider.engine.speculation.drafters.drafter import DrafterError

NAMES = ("auto", "none", *AT_LOAD)


def quantization_of(options: dict[str, Any], usual: str | None) -> str | None:
    """Takes the option ``quantization`` out: ``usual`` for ``auto`` or if it is missing, and None for ``none``.

    Raises:
        DrafterError: there is no quantization of that name.
    """
    name = options.pop("quantization", "auto")
    if name not in NAMES:
        raise DrafterError(f"a drafter's quantization is {name!r}; it must be one of {', '.join(NAMES)}")
    return {"auto": usual, "none": None}.get(name, name)
