"""What a GGUF file says about text: its tokenizer, its chat template and its context length."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from outrider.engine.errors import ModelError
from outrider.engine.models.gguf.definition import tokenizer_definition
from outrider.engine.models.gguf.header import GgufFile
from outrider.engine.models.gguf.metadata import Metadata
from outrider.engine.models.gguf.vocabulary import Vocabulary
from outrider.engine.text.errors import TextError
from outrider.engine.text.files import Templates

_TEMPLATE = "tokenizer.chat_template"


@dataclass(frozen=True, slots=True)
class GgufText:
    """A file's part for texts.

    Attributes:
        definition: the contents of a ``tokenizer.json``.
        names: texts of the tokens with a role (``bos_token``, ...).
        templates: sources of the chat templates.
        eos_ids: ids that end a text.
        context_length: most tokens of a text; None if the file does not say.
    """

    definition: bytes
    names: dict[str, str]
    templates: Templates
    eos_ids: tuple[int, ...]
    context_length: int | None


def gguf_text(path: Path) -> GgufText:
    """Reads a file's part for texts; `TextError` if it is damaged or of a kind that is not supported."""
    try:
        metadata = GgufFile.open(path).metadata
        vocabulary = Vocabulary.read(metadata)
        return GgufText(
            tokenizer_definition(metadata, vocabulary),
            vocabulary.names,
            _templates(metadata),
            vocabulary.eos_ids,
            _context_length(metadata),
        )
    except ModelError as error:
        raise TextError(str(error)) from None


def _templates(metadata: Metadata) -> Templates:
    """The template without a name, else the one named ``default``, and the one for tools."""
    keys = {"tool_use": f"{_TEMPLATE}.tool_use", "default": f"{_TEMPLATE}.default"}
    if _TEMPLATE in metadata:
        keys["default"] = _TEMPLATE
    return Templates.of({name: metadata.text(key) for name, key in keys.items() if key in metadata})


def _context_length(metadata: Metadata) -> int | None:
    key = f"{metadata.text('general.architecture')}.context_length"
    return metadata.count(key) if key in metadata else None
