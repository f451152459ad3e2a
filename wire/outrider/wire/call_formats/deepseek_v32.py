"""The format of DeepSeek V3.2 (https://huggingface.co/deepseek-ai/DeepSeek-V3.2, encoding): tags that tell strings."""

from __future__ import annotations

from outrider.wire.call_formats.call_format import CallFormat, Tags

_CALL = '\n<｜DSML｜invoke name="$NAME">\n'

DEEPSEEK_V32 = CallFormat(
    signs=("｜DSML｜", "function_calls>", "invoke name="),
    head=("<｜DSML｜function_calls>" + _CALL,),
    later=(_CALL,),
    tail=("</｜DSML｜invoke>", "\n</｜DSML｜invoke>"),
    gap="\n\n",
    end="\n</｜DSML｜function_calls>",
    trigger="<｜DSML｜function_calls>",
    arguments=Tags('<｜DSML｜parameter name="', '" string="true">', "</｜DSML｜parameter>\n", '" string="false">'),
    marks=("｜DSML｜",),
)
