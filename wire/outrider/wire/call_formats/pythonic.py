"""Calls as Python writes them, in a list: ``[f(a=1), g()]``.

Llama 3.2 and 4 (https://github.com/meta-llama/llama-models) and Gemma 3 are prompted for it, by templates such as those
of vLLM's examples.
"""

from __future__ import annotations

from outrider.wire.call_formats.call_format import CallFormat

PYTHONIC = CallFormat(
    signs=("[func_name1(",),
    head=("[$NAME(",),
    later=(", $NAME(",),
    tail=(")",),
    end="]",
    trigger="",
    arguments="python",
    anywhere=False,
)
