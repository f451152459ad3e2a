"""Sliding windows: which layers see only the latest positions (Beltagy et al. 2020, "Longformer")."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from outrider.engine.models.fields import Fields

Windows = tuple[int | None, ...]
"""For each layer, the latest positions that a row sees, its own included; None where it sees all."""
ReadWindows = Callable[[Fields, int], Windows]
"""Reads the windows of so many layers."""

_LAYER_TYPES = {"full_attention": False, "sliding_attention": True}


def no_windows(fields: Fields, layers: int) -> Windows:
    """Of a family without windows."""
    return (None,) * layers


def mistral_windows(fields: Fields, layers: int) -> Windows:
    """The same window in all layers; 4096 if the field is absent, none if it is null."""
    absent = "sliding_window" in fields.values and fields.values["sliding_window"] is None
    return (None if absent else fields.count("sliding_window", 4096),) * layers


def mixtral_windows(fields: Fields, layers: int) -> Windows:
    """The same window in all layers, where there is one."""
    return (_window(fields),) * layers


def qwen_windows(fields: Fields, layers: int) -> Windows:
    """Where ``use_sliding_window`` is set, a window in the layers of that type, or from ``max_window_layers`` on."""
    if not fields.flag("use_sliding_window", False):
        return (None,) * layers
    first = fields.values.get("max_window_layers", 28)
    if not isinstance(first, int) or isinstance(first, bool) or first < 0:
        raise fields.wrong("max_window_layers", "a whole number of at least 0")
    slides = _layer_types(fields, layers) or [index >= first for index in range(layers)]
    return _windows(_window(fields), slides)


def qwen_moe_windows(fields: Fields, layers: int) -> Windows:
    """Where ``use_sliding_window`` is set, the same window in all layers."""
    return (_window(fields) if fields.flag("use_sliding_window", False) else None,) * layers


def gemma_windows(fields: Fields, layers: int) -> Windows:
    """A window in the layers of that type, or in all but every ``sliding_window_pattern``-th."""
    window = fields.count("sliding_window", 4096)
    pattern = fields.count("sliding_window_pattern", fields.count("_sliding_window_pattern", 6))
    slides = _layer_types(fields, layers) or [(index + 1) % pattern != 0 for index in range(layers)]
    return _windows(window, slides)


def _window(fields: Fields) -> int | None:
    return None if fields.values.get("sliding_window") is None else fields.count("sliding_window")


def _windows(window: int | None, slides: Sequence[bool]) -> Windows:
    return tuple(window if each else None for each in slides)


def _layer_types(fields: Fields, layers: int) -> list[bool] | None:
    """Whether each layer slides; None if the field is absent."""
    types = fields.values.get("layer_types")
    if types is None:
        return None
    if not isinstance(types, list) or len(types) != layers or any(each not in list(_LAYER_TYPES) for each in types):
        raise fields.wrong("layer_types", f"a list of {layers} of " + ", ".join(_LAYER_TYPES))
    return [_LAYER_TYPES[each] for each in types]
