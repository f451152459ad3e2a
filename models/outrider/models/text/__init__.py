"""Text in and out of a model: tokenizers, chat templates, incremental decoding, stop strings.

Imports only ``tokenizers`` and ``jinja2``, so that services without a model can use this package.
"""

from outrider.models.text.errors import TextError
from outrider.models.text.incremental import IncrementalDecoder
from outrider.models.text.stop import StopMatcher
from outrider.models.text.tokenizer import Tokenizer

__all__ = ["IncrementalDecoder", "StopMatcher", "TextError", "Tokenizer"]
