"""Text in and out of a model: tokenizers, chat templates, incremental decoding, stop strings.

Needs only ``tokenizers``, and ``jinja2`` for chats, so that services without a model can use this package.
"""

from outrider.engine.text.errors import TextError
from outrider.engine.text.incremental import IncrementalDecoder
from outrider.engine.text.stop import StopMatcher
from outrider.engine.text.tokenizer import Tokenizer

__all__ = ["IncrementalDecoder", "StopMatcher", "TextError", "Tokenizer"]
