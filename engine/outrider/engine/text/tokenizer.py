"""The tokenizer of a Hugging Face model directory or a GGUF file."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from outrider.engine.models.gguf.header import is_gguf
from outrider.engine.needs import need
from outrider.engine.text import files, pieces
from outrider.engine.text.added_tokens import Declared, completed, declared_tokens, special_texts
from outrider.engine.text.chat import Part
from outrider.engine.text.ends import mark_special, special_tokens
from outrider.engine.text.errors import TextError
from outrider.engine.text.gguf_text import gguf_text
from outrider.engine.text.infill import Infill
from outrider.engine.text.rendering import Renderings

if TYPE_CHECKING:
    import tokenizers

_LEAD = "☺"
"""Stands before a text that is encoded as if others preceded it, as in Meta's code of Code Llama."""


class Tokenizer:
    """Encodes text to ids and decodes ids, for one vocabulary. Thread-safe.

    ``template`` renders chats, and ``tool_template`` those with tools where it is another. ``declared`` tokens and
    ``special`` ones stand beside the ``definition``. ``eos_token_ids`` end an answer: those that the model's files
    name, and those of `end_names` in `ends`. ``context_length`` is None if no file states it; ``call_template`` is the
    source of the template that renders calls of functions, or empty. ``infill`` has the marks of prompts with a suffix;
    None for a model without them. ``names`` are special tokens (``bos_token``, ...).
    """

    def __init__(
        self,
        definition: bytes,
        *,
        names: Mapping[str, str] | None = None,
        template: str | None = None,
        tool_template: str | None = None,
        eos_token_ids: Sequence[int] = (),
        context_length: int | None = None,
        declared: Declared | None = None,
        special: Sequence[str] = (),
    ) -> None:
        self._parsing = _load(definition)
        if declared is not None and (whole := completed(definition, self._parsing, declared)) is not None:
            self._parsing = _load(whole)
        ends = mark_special(self._parsing, special, (template, tool_template))
        self._plain = _plain(self._parsing)
        self._vocabulary: dict[str, int] = self._parsing.get_vocab(with_added_tokens=True)
        self._kinds = pieces.decoder_kinds(_decoder(self._parsing))
        self.special_tokens = special_tokens(self._parsing)
        named = [(names or {}).get("eos_token", ""), *ends]
        self.eos_token_ids = tuple(
            dict.fromkeys([*eos_token_ids, *(self._vocabulary[name] for name in named if name in self._vocabulary)])
        )
        self.infill = Infill.of(self._vocabulary, names or {})
        self.context_length = context_length
        self.names = dict(names or {})
        self.template = template
        self.call_template = tool_template or template or ""
        self._renderings = Renderings(template, tool_template, names or {}, self.special_tokens)

    @classmethod
    def load(cls, directory: Path) -> Self:
        """Tokenizer of a model, which is a directory or a GGUF file; `TextError` if a file is missing or corrupt."""
        if is_gguf(directory):
            return cls._of_gguf(directory)
        path = directory / "tokenizer.json"
        try:
            definition = path.read_bytes()
        except OSError as error:
            raise TextError(f"{path} cannot be read: {error.strerror}") from None
        tokenizer_config = files.tokenizer_config(directory)
        config = files.read_json(directory / "config.json")
        try:
            templates = files.chat_templates(directory, tokenizer_config)
            return cls(
                definition,
                names=files.special_names(tokenizer_config),
                template=templates.default,
                tool_template=templates.tool_use,
                eos_token_ids=files.eos_ids(directory, config),
                context_length=files.context_length(config, tokenizer_config),
                declared=declared_tokens(directory, tokenizer_config),
                special=special_texts(tokenizer_config),
            )
        except TextError as error:
            raise TextError(f"{directory}: {error}") from None

    @classmethod
    def _of_gguf(cls, path: Path) -> Self:
        text = gguf_text(path)
        try:
            return cls(
                text.definition,
                names=text.names,
                template=text.templates.default,
                tool_template=text.templates.tool_use,
                eos_token_ids=text.eos_ids,
                context_length=text.context_length,
            )
        except TextError as error:
            raise TextError(f"{path}: {error}") from None

    def forget(self) -> None:
        """Empties the library's cache of words, which are parts of texts, and ends the processes that render chats."""
        self._renderings.forget()
        for each in (self._parsing, self._plain):
            if (clear := getattr(each.model, "_clear_cache", None)) is not None:
                clear()

    def definition(self) -> bytes:
        """The contents of a ``tokenizer.json`` of this tokenizer."""
        return str(self._parsing.to_str()).encode()

    @cached_property
    def vocabulary_size(self) -> int:
        """One more than the highest id."""
        return max(self._vocabulary.values()) + 1

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 (hexadecimal) over the sorted (token, id) pairs, added tokens included."""
        pairs = json.dumps(sorted(self._vocabulary.items()), ensure_ascii=False, separators=(",", ":"))
        return hashlib.sha256(pairs.encode()).hexdigest()

    def added_token(self, text: str) -> int | None:
        """Id of the added token with exactly this text; None without one."""
        added = self._parsing.get_added_tokens_decoder()
        return next((number for number, token in added.items() if token.content == text), None)

    def has_added(self, ids: Iterable[int]) -> bool:
        """Whether one of ``ids`` is an added token, which ordinary text cannot spell."""
        return not self._parsing.get_added_tokens_decoder().keys().isdisjoint(ids)

    @property
    def has_chat_template(self) -> bool:
        """Whether the model has a chat template."""
        return bool(self._renderings)

    @property
    def byte_level(self) -> bool:
        """Whether a text is the joined bytes of its tokens."""
        return pieces.is_byte_level(self._kinds)

    @cached_property
    def longest_token(self) -> int:
        """Most UTF-8 bytes of text in one token."""
        return max(map(len, self._all_bytes))

    def encode(self, text: str, *, parse_special: bool = False, add_special: bool = True) -> list[int]:
        """Ids of ``text``. ``parse_special`` turns names of special tokens in the text into those tokens;
        ``add_special`` adds the model's tokens around a text (often a beginning-of-text token).
        """
        return self.encode_batch([text], parse_special=parse_special, add_special=add_special)[0]

    def encode_batch(
        self, texts: Sequence[str], *, parse_special: bool = False, add_special: bool = True
    ) -> list[list[int]]:
        """Ids of each text, as `encode`."""
        encoder = self._parsing if parse_special else self._plain
        return [e.ids for e in encoder.encode_batch_fast(list(texts), add_special_tokens=add_special)]

    def encode_infill(
        self,
        prefix: str,
        suffix: str,
        files: Sequence[tuple[str, str]] = (),
        *,
        parse_special: bool = False,
        add_special: bool = True,
    ) -> list[int]:
        """Ids of a prompt for the text between ``prefix`` and ``suffix``, each encoded as `encode` does.

        Other ``files`` of the repository, each a name and a text, stand in front of it. `TextError` for a model without
        tokens for that.
        """
        if self.infill is None:
            raise TextError("this model has no tokens for a prompt with a suffix")
        before = self.encode(prefix, parse_special=parse_special, add_special=False)
        after = self._encode_inside(suffix, parse_special)
        named = [f"{name or 'file'}\n{text}" for name, text in (*files, ("", "")) if files]
        ahead = self.infill.separated(self.encode_batch(named, add_special=False))
        return [*self.encode("", add_special=add_special), *ahead, *self.infill.around(before, after)]

    def _encode_inside(self, text: str, parse_special: bool) -> list[int]:
        """Ids of a text that others precede: without the space that SentencePiece puts before a text."""
        lead = [] if self.byte_level else self.encode(_LEAD, add_special=False)
        both = self.encode(_LEAD + text if lead else text, parse_special=parse_special, add_special=False)
        return both[len(lead) :]

    def start_rendering(self) -> None:
        """Starts the processes that render chats, one a template; `TextError` if a template does not compile."""
        self._renderings.start()

    def encode_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        variables: Mapping[str, Any] | None = None,
        continue_final_message: bool = False,
        template: str = "",
    ) -> list[int]:
        """Ids of a chat; names of special tokens are special in the template and plain text in messages.

        With ``continue_final_message``, the last message is left open; a ``template`` takes the place of the model's.
        `TextError` if the model has no template or the template refuses the chat or takes too much time or memory for
        it, `NotRendered` if the process that renders is gone.
        """
        chat = (messages, tools, add_generation_prompt, variables, continue_final_message)
        return self.encode_parts(self.chat_parts(*chat, template))

    def chat_parts(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        variables: Mapping[str, Any] | None = None,
        continue_final_message: bool = False,
        template: str = "",
    ) -> list[Part]:
        """The first half of `encode_chat`: the rendered chat in parts."""
        rendering = self._renderings.new(template) if template else self._renderings.of(tools)
        try:
            return rendering.parts(messages, tools, add_generation_prompt, variables, continue_final_message)
        finally:
            if template:
                rendering.forget()

    def begin_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        variables: Mapping[str, Any] | None = None,
        continue_final_message: bool = False,
        template: str = "",
    ) -> Future[list[Part]] | None:
        """As `chat_parts`, for event loops: see `Rendering.begin`. None for a ``template``, whose process starts."""
        chat = (messages, tools, add_generation_prompt, variables, continue_final_message)
        return None if template else self._renderings.of(tools).begin(*chat)

    def encode_parts(self, parts: Sequence[Part]) -> list[int]:
        """The second half of `encode_chat`: ids of the parts, joined."""
        encoded = (self.encode(part.text, parse_special=part.trusted, add_special=False) for part in parts)
        return [token for ids in encoded for token in ids]

    def decode(self, ids: Sequence[int], *, keep_special: bool = False) -> str:
        """Text of ``ids``; `TextError` for an id outside the vocabulary."""
        self.require_known(ids)
        return str(self._parsing.decode(list(ids), skip_special_tokens=not keep_special))

    def decode_known(self, ids: list[int]) -> str:
        """Text of valid ids, special tokens included."""
        return str(self._parsing.decode(ids, skip_special_tokens=False))

    def require_known(self, ids: Iterable[int]) -> None:
        """`TextError` unless all ``ids`` are in this vocabulary."""
        for token in ids:
            if token < 0 or self._parsing.id_to_token(token) is None:
                raise TextError(f"token id {token} is outside the vocabulary of {self.vocabulary_size} tokens")

    def require_special(self, tokens: Iterable[str]) -> None:
        """`TextError` unless all ``tokens`` are special tokens of this vocabulary."""
        for token in tokens:
            if token not in self.special_tokens:
                names = ", ".join(self.special_tokens) or "none"
                raise TextError(f"there is no special token {token!r}; there are: {names}")

    def token_bytes(self, keep_special: bool) -> Sequence[bytes]:
        """Bytes of every token of a byte-level vocabulary by id; special tokens are empty unless kept."""
        return self._all_bytes if keep_special else self._ordinary_bytes

    @cached_property
    def single_token_bytes(self) -> Sequence[bytes]:
        """Bytes of every single token by id; special tokens have their names, unused ids are empty."""
        if self.byte_level:
            return self._all_bytes
        table = [b""] * self.vocabulary_size
        special = set(self.special_tokens)
        for token, number in self._vocabulary.items():
            table[number] = token.encode() if token in special else pieces.piece_bytes(token)
        return table

    def silent_ids(self, keep_special: bool) -> frozenset[int]:
        """Ids without text."""
        return frozenset() if keep_special else frozenset(self.special_tokens.values())

    @cached_property
    def byte_ids(self) -> frozenset[int]:
        """Ids of SentencePiece's byte fallback, one byte each."""
        if "ByteFallback" not in self._kinds:
            return frozenset()
        return frozenset(number for token, number in self._vocabulary.items() if pieces.is_byte_token(token))

    @cached_property
    def _all_bytes(self) -> list[bytes]:
        table = [b""] * self.vocabulary_size
        for token, number in self._vocabulary.items():
            table[number] = pieces.token_bytes(token) if self.byte_level else token.encode()
        return table

    @cached_property
    def _ordinary_bytes(self) -> list[bytes]:
        table = list(self._all_bytes)
        for number in self.special_tokens.values():
            table[number] = b""
        return table


def _load(definition: bytes) -> tokenizers.Tokenizer:
    library = need("tokenizers", "texts of models")
    try:
        loaded: tokenizers.Tokenizer = library.Tokenizer.from_buffer(definition)
    except BaseException as error:
        if (
            not isinstance(error, Exception) and type(error).__name__ != "PanicException"
        ):  # which the library's Rust raises
            raise
        raise TextError(f"tokenizer.json is corrupt: {error}") from None
    loaded.no_truncation()
    loaded.no_padding()
    return loaded


def _plain(parsing: tokenizers.Tokenizer) -> tokenizers.Tokenizer:
    """A tokenizer that takes names of special tokens as plain text. It shares the vocabulary with ``parsing``."""
    plain = type(parsing)(parsing.model)
    for name in ("normalizer", "pre_tokenizer", "post_processor", "decoder"):
        if (part := getattr(parsing, name)) is not None:
            setattr(plain, name, part)
    plain.add_tokens([added for _, added in sorted(parsing.get_added_tokens_decoder().items())])
    plain.encode_special_tokens = True
    return plain


def _decoder(tokenizer: tokenizers.Tokenizer) -> dict[str, Any] | None:
    """The decoder as ``tokenizer.json`` describes it, which is also what the library pickles."""
    return None if tokenizer.decoder is None else json.loads(tokenizer.decoder.__getstate__())
