"""The format of DeepSeek V3 and R1 (https://github.com/deepseek-ai/DeepSeek-V3): JSON in a code fence."""

from __future__ import annotations

from outrider.wire.call_formats.call_format import CallFormat

_CALL = "<｜tool▁call▁begin｜>function<｜tool▁sep｜>$NAME\n```json\n"

DEEPSEEK_V3 = CallFormat(
    signs=("<｜tool▁calls▁begin｜>", "```json"),
    head=("<｜tool▁calls▁begin｜>" + _CALL,),
    later=("\n" + _CALL,),
    tail=("\n```<｜tool▁call▁end｜>",),
    end="<｜tool▁calls▁end｜>",
    trigger="<｜tool▁calls▁begin｜>",
    marks=(
        "<｜tool▁calls▁begin｜>",
        "<｜tool▁call▁begin｜>",
        "<｜tool▁sep｜>",
        "<｜tool▁call▁end｜>",
        "<｜tool▁calls▁end｜>",
    ),
)
