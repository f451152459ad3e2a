"""The format of DeepSeek V3.1 (https://huggingface.co/deepseek-ai/DeepSeek-V3.1): that of V3 without the fence."""

from __future__ import annotations

from outrider.wire.call_formats.call_format import CallFormat
from outrider.wire.call_formats.deepseek_v3 import DEEPSEEK_V3

_CALL = "<｜tool▁call▁begin｜>$NAME<｜tool▁sep｜>"

DEEPSEEK_V31 = CallFormat(
    signs=("<｜tool▁calls▁begin｜>",),
    head=("<｜tool▁calls▁begin｜>" + _CALL,),
    later=(_CALL,),
    tail=("<｜tool▁call▁end｜>",),
    end=DEEPSEEK_V3.end,
    trigger=DEEPSEEK_V3.trigger,
    marks=DEEPSEEK_V3.marks,
)
